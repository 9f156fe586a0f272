"""The closing table: one job with two sources of batches."""

from collections.abc import Callable
from dataclasses import dataclass

from flights_model import Pass, Score


@dataclass(frozen=True)
class Job:
    """One way to train the model, and its measurements."""

    name: str
    before: str
    """The work before the first step of training."""
    before_seconds: float
    training: Pass
    reading: Pass
    """An epoch read without training."""
    held_out: Score
    written_bytes: int
    """Bytes of features written to storage."""


def closing_table(*jobs: Job) -> str:
    """Format the jobs as columns."""
    rows: list[tuple[str, Callable[[Job], str]]] = [
        ("before training, s", lambda job: f"{job.before_seconds:.2f} ({job.before})"),
        ("training, s", lambda job: f"{job.training.seconds:.2f}"),
        ("total, s", lambda job: f"{job.before_seconds + job.training.seconds:.2f}"),
        ("waiting for data while training, s", lambda job: f"{job.training.wait_seconds:.2f}"),
        ("rows/s while training", lambda job: _rate(job.training.rows, job.training)),
        ("bytes/s while training", lambda job: _rate(job.training.bytes, job.training)),
        ("rows/s while only reading", lambda job: _rate(job.reading.rows, job.reading)),
        ("bytes/s while only reading", lambda job: _rate(job.reading.bytes, job.reading)),
        ("bytes of features written", lambda job: f"{job.written_bytes:,}"),
        ("held-out flights", lambda job: f"{job.held_out.rows:,}"),
        ("held-out accuracy", lambda job: f"{job.held_out.accuracy:.2%}"),
        ("majority baseline", lambda job: f"{job.held_out.majority:.2%}"),
    ]
    lines = [["", *(job.name for job in jobs)]]
    lines += [[title, *(cell(job) for job in jobs)] for title, cell in rows]
    return aligned(lines)


def aligned(lines: list[list[str]]) -> str:
    """Format rows of cells as columns, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _rate(amount: int, measured: Pass) -> str:
    return f"{amount / measured.seconds:,.0f}"


def _line(cells: list[str], widths: list[int]) -> str:
    title, *values = cells
    columns = [value.rjust(width) for value, width in zip(values, widths[1:], strict=True)]
    return "   ".join([title.ljust(widths[0]), *columns])
