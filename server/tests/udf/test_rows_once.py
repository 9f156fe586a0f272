"""A shuffled epoch computes the columns of functions once for each row, however many lanes share a row group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon
from harness.epochs import every_byte
from harness.udf.pool import Functions

ROWS = 3001
# Notes the rows of every call in a file, a line for each.
MODULE = """
import os, pyarrow as pa
from forebay import udf

NOTES = os.open({notes!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@udf.function(arguments=[pa.int64()], returns=pa.list_(pa.int32()))
def noted(row):
    rows = row.to_pylist()
    os.write(NOTES, "".join(f"{{number}}\\n" for number in rows).encode())
    return pa.array([[number] * (number % 7) for number in rows], pa.list_(pa.int32()))

@udf.function(arguments=[pa.int64()], returns=pa.bool_())
def odd(row):
    return pa.array([None if number % 5 == 0 else number % 2 == 1 for number in row.to_pylist()], pa.bool_())

@udf.function(arguments=[pa.int64()], returns=pa.list_(pa.int8()))
def gappy(row):
    lists = [None if number % 3 == 0 else [number % 100, None] * (number % 4) for number in row.to_pylist()]
    return pa.array(lists, pa.list_(pa.int8()))
"""
PADDED = fb.Plan(
    outputs={
        "row": fb.output(fb.cols("row"), dtype="INT64"),
        "list": fb.output(fb.cols("row").udf("noted").pad(6, -1), dtype="INT64"),
    }
)
PACKED = fb.Plan(outputs={"list": fb.output(fb.cols("row").udf("noted"), pack=fb.Pack(8, separator=-3))})


class Noted:
    """A server of a table in one row group, and the rows for which its function was called."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.daemon = daemon
        self._notes = folder / "notes"

    def stream(self, plan: fb.Plan, **options: Any) -> list[Any]:
        """The batches of all ranks, one rank after another."""
        with fb.connect(self.daemon.url) as client:
            ranks = range(options.get("world_size", 1))
            return [batch for rank in ranks for batch in client.stream("t", plan, rank=rank, batch_size=64, **options)]

    def forget(self) -> None:
        self._notes.write_text("")

    def calls(self) -> Counter[int]:
        """How often the function was called for each row."""
        return Counter(map(int, self._notes.read_text().split()))


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Noted]:
    folder = tmp_path_factory.mktemp("noted")
    (folder / "data").mkdir()
    pq.write_table(pa.table({"row": np.arange(ROWS)}), folder / "data/a.parquet")
    (folder / "noting.py").write_text(MODULE.format(notes=str(folder / "notes")))
    names = ["noted", "odd", "gappy"]
    with Functions([f"noting:{name}" for name in names], folder / "udf.sock", folder=folder) as functions:
        daemon = Daemon(*LOOPBACK, "--dataset", f"t={folder / 'data'}", *functions.flag(*names))
        yield Noted(folder, daemon)
        daemon.stop()


@pytest.mark.parametrize("options", [{}, {"lanes": 64, "window_rows": 5}, {"world_size": 3}], ids=str)
@pytest.mark.parametrize("condition", ["", "row % 3 <> 1"])
def test_each_row_is_computed_once(noted: Noted, condition: str, options: dict[str, Any]):
    plan = PADDED.with_filter(condition) if condition else PADDED
    expected = [row for row in range(ROWS) if not condition or row % 3 != 1]
    for epoch in (0, 1):
        noted.forget()
        batches = noted.stream(plan, shuffle=True, seed=2, epoch=epoch, **options)
        rows = np.concatenate([batch["row"] for batch in batches]).tolist()
        assert sorted(rows) == expected
        lists = np.concatenate([batch["list"] for batch in batches]).tolist()
        assert lists == [[row] * (row % 7) + [-1] * (6 - row % 7) for row in rows]
        assert noted.calls() == Counter(expected)


@pytest.mark.parametrize("options", [{}, {"lanes": 64, "window_rows": 5}], ids=str)
def test_documents_are_computed_once(noted: Noted, options: dict[str, Any]):
    in_order = np.concatenate([batch["list"] for batch in noted.stream(PACKED)])
    # The lengths of the epoch are known now.
    noted.forget()
    shuffled = np.concatenate([batch["list"] for batch in noted.stream(PACKED, shuffle=True, seed=2, **options)])
    assert sorted(shuffled.tolist()) == sorted(in_order.tolist())
    assert shuffled.tolist() != in_order.tolist()
    assert noted.calls() == Counter(range(ROWS))


@pytest.mark.parametrize("order", [{}, {"shuffle": True, "lanes": 8, "window_rows": 100}], ids=str)
def test_streams_resume_byte_for_byte(noted: Noted, order: dict[str, Any]):
    """Columns that are computed for fewer rows have the same bytes, also in null slots and behind the last row."""
    chains = {name: fb.cols("row").udf(name).as_stored() for name in ("noted", "odd", "gappy")}
    plan = fb.Plan(outputs={"row": fb.output(fb.cols("row"), dtype="INT64"), **chains})
    request = {"dataset": "t", "plan": plan.to_dict(), "batch_size": 8, "seed": 4, **order}
    with fl.connect(noted.daemon.url) as client:
        (whole,) = every_byte(client, request)
        for step in (1, 17, 128, 300):
            (resumed,) = every_byte(client, {**request, "start_position": 8 * step})
            assert resumed == whole[step:], step
