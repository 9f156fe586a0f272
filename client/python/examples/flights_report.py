"""The closing table: one job, two ways to feed it."""

from collections.abc import Callable
from dataclasses import dataclass

from flights_model import Pass, Score


@dataclass(frozen=True)
class Job:
    """One way to get from the flights to a trained model, and what it took."""

    name: str
    before: str
    """What has to be done before the first step of training."""
    before_seconds: float
    training: Pass
    reading: Pass
    """An epoch read with nothing done to it."""
    held_out: Score
    written_bytes: int
    """Bytes of features stored on the way."""


def closing_table(*jobs: Job) -> str:
    """Lay the jobs side by side."""
    rows: list[tuple[str, Callable[[Job], str]]] = [
        ("before training, s", lambda job: f"{job.before_seconds:.2f} ({job.before})"),
        ("training, s", lambda job: f"{job.training.seconds:.2f}"),
        ("both, s", lambda job: f"{job.before_seconds + job.training.seconds:.2f}"),
        ("of it the loop waited for data, s", lambda job: f"{job.training.wait_seconds:.2f}"),
        ("rows/s while training", lambda job: _rate(job.training.rows, job.training)),
        ("bytes/s while training", lambda job: _rate(job.training.bytes, job.training)),
        ("rows/s, nothing done with them", lambda job: _rate(job.reading.rows, job.reading)),
        ("bytes/s, nothing done with them", lambda job: _rate(job.reading.bytes, job.reading)),
        ("bytes of features written", lambda job: f"{job.written_bytes:,}"),
        ("held-out flights", lambda job: f"{job.held_out.rows:,}"),
        ("held-out accuracy", lambda job: f"{job.held_out.accuracy:.2%}"),
        ("always the majority", lambda job: f"{job.held_out.majority:.2%}"),
    ]
    lines = [["", *(job.name for job in jobs)]]
    lines += [[title, *(cell(job) for job in jobs)] for title, cell in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _rate(amount: int, taken: Pass) -> str:
    return f"{amount / taken.seconds:,.0f}"


def _line(cells: list[str], widths: list[int]) -> str:
    title, *values = cells
    columns = [value.rjust(width) for value, width in zip(values, widths[1:], strict=True)]
    return "   ".join([title.ljust(widths[0]), *columns])
