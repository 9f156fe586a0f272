"""The conformance suite: a test class per adapter inherits `Conformance` and drives the real framework.

Rows are compared by their ids and by the bytes of their features, in the order in which the framework received them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.leaks import nothing_left
from harness.serving import Server

BATCH_SIZE = 8
ROWS = 100
SEED = 5
# Without parameters to learn, so that the rows of LATE are not read before they are streamed.
PLAN = fb.Plan(
    outputs={
        "id": fb.output(fb.cols("id"), dtype="int64"),
        "dense": fb.output([fb.cols("x").clip(-1, 4), fb.cols("unit")], dtype="float32"),
        "label": fb.output(fb.cols("small"), dtype="float32"),
    }
)
# The row that no FLOAT32 represents, in a dataset that is otherwise the same.
BAD_ROW = 90
ERROR = "16777217"


@dataclass
class Rows:
    """Rows in the order in which a framework received them."""

    ids: list[int] = field(default_factory=list[int])
    values: bytes = b""
    """Their features, row by row, as float32."""

    def add(self, ids: Any, features: Any) -> None:
        """Add those of a batch."""
        self.ids += [int(one) for one in ids]
        self.values += np.ascontiguousarray(features, np.float32).tobytes()

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.ids + other.ids, self.values + other.values)


@dataclass(frozen=True)
class Job:
    """A training that an adapter's test runs."""

    url: str
    dataset: str = "tiny"
    shuffle: bool = False
    epochs: int = 1
    """Epochs in all, those before the state included."""
    stop_after: int | None = None
    """Batches of BATCH_SIZE rows after which it saves its state and ends, before it requests another; None: all."""
    state: Any = None
    """The state that it resumes from."""
    folder: Path = Path()
    """For checkpoints."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of the dataset, whatever its class."""
        return {"batch_size": BATCH_SIZE, "shuffle": self.shuffle, "seed": SEED, "retry_seconds": 0.0}


@dataclass(frozen=True)
class Done:
    """What a training received."""

    epochs: list[Rows]
    """The rows of each epoch, or of what was left of it."""
    state: Any = None
    """The state that it saved, if it was stopped."""


def write_late(folder: Path, tiny: pa.Table) -> None:
    """Write a dataset in which one row cannot be converted, late in the epoch."""
    folder.mkdir()
    small = pa.array([2**24 + 1 if row == BAD_ROW else 0 for row in range(ROWS)], pa.int32())
    late = tiny.set_column(tiny.schema.get_field_index("small"), "small", small)
    pq.write_table(late, folder / "a.parquet", row_group_size=17)


def expected(url: str, *, shuffle: bool, epoch: int = 0, ranks: int = 1) -> Rows:
    """The rows of an epoch, by the client alone: the batches of all ranks at each step."""
    options: dict[str, Any] = {"shuffle": shuffle, "seed": SEED, "epoch": epoch}
    options |= {"batch_size": BATCH_SIZE // ranks, "world_size": ranks}
    with fb.connect(url) as client, ExitStack() as stack:
        streams = [stack.enter_context(client.stream("tiny", PLAN, rank=rank, **options)) for rank in range(ranks)]
        return by_step([[one_batch(batch) for batch in stream] for stream in streams])


def one_batch(batch: Any) -> Rows:
    """The rows of a batch."""
    rows = Rows()
    rows.add(batch["id"], batch["dense"])
    return rows


def by_step(ranks: list[list[Rows]]) -> Rows:
    """The rows of several ranks' batches, in the order of the steps, and of the ranks within a step."""
    steps = zip_longest(*ranks, fillvalue=Rows())
    return sum((rows for step in steps for rows in step), Rows())


class Conformance:
    """Tests of an adapter. A subclass implements `run`, and says what its framework cannot do."""

    shuffles = True
    """Whether the framework reads epochs of different orders."""
    resumes = True
    """Whether a training continues within an epoch. One that does not must receive the same rows again."""
    raises: type[BaseException] = fb.ForebayError
    """The error that arrives; its text, or that of its causes, is the server's."""

    ranks = 1
    """Ranks of a training; its rows are those of `by_step`, and each rank's batches have BATCH_SIZE / ranks rows."""

    def expected(self, url: str, *, shuffle: bool, epoch: int = 0) -> Rows:
        """The rows of an epoch."""
        return expected(url, shuffle=shuffle, epoch=epoch, ranks=self.ranks)

    def run(self, job: Job) -> Done:
        """Run a training through the real framework."""
        raise NotImplementedError

    def test_every_row_arrives_once_in_order(self, server: Server, tmp_path: Path):
        (rows,) = self.run(Job(server.url, folder=tmp_path)).epochs
        assert sorted(rows.ids) == list(range(ROWS))
        assert rows.ids == list(range(ROWS)) or self.ranks > 1
        assert rows == self.expected(server.url, shuffle=False)

    def test_epochs_have_the_same_rows_in_another_order(self, server: Server, tmp_path: Path):
        if not self.shuffles:
            pytest.skip("this framework reads one epoch")
        first, second = self.run(Job(server.url, shuffle=True, epochs=2, folder=tmp_path)).epochs
        assert sorted(first.ids) == sorted(second.ids) == list(range(ROWS))
        assert first.ids != second.ids
        assert [first, second] == [self.expected(server.url, shuffle=True, epoch=epoch) for epoch in range(2)]

    def test_a_resumed_epoch_continues_with_the_same_bytes(self, server: Server, tmp_path: Path):
        whole = self.expected(server.url, shuffle=True)
        if not self.resumes:
            for _ in range(2):
                assert self.run(Job(server.url, shuffle=True, folder=tmp_path)).epochs == [whole]
            return
        stopped = self.run(Job(server.url, shuffle=True, stop_after=5, folder=tmp_path))
        assert len(stopped.epochs[0].ids) == 5 * BATCH_SIZE
        rest = self.run(Job(server.url, shuffle=True, state=stopped.state, folder=tmp_path))
        assert stopped.epochs[0] + rest.epochs[0] == whole

    def test_errors_of_the_server_arrive(self, serve: Callable[..., Server], tiny: pa.Table, tmp_path: Path):
        write_late(tmp_path / "late", tiny)
        late = serve({"tiny": tmp_path / "late"})
        with pytest.raises(self.raises) as caught:
            self.run(Job(late.url, folder=tmp_path))
        assert ERROR in messages(caught.value)

    def test_no_thread_and_no_descriptor_is_left(self, server: Server, tmp_path: Path):
        jobs = [Job(server.url, folder=tmp_path)]
        if self.resumes:
            jobs.append(Job(server.url, stop_after=2, folder=tmp_path))
        for job in jobs:
            self.run(job)
        with nothing_left():
            for job in jobs:
                self.run(job)


def messages(error: BaseException | None) -> str:
    """The texts of an error and its causes."""
    found: list[str] = []
    while error is not None:
        found.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(found)
