"""Shuffled streams whose files change, and whose windows exceed the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from forebay.errors import translate
from harness.epoch_order import Epoch, passing_rows
from harness.epochs import (
    failure,
    row_ids,
)
from harness.serving import Serve, info

LONG_FILES, LONG_GROUPS, LONG_ROWS = 2, 30, 500
LONG_PLAN: dict[str, Any] = {
    "outputs": [
        {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
        {"name": "version", "dtype": "INT32", "parts": [{"columns": ["version"]}]},
        {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]},
    ]
}


def write_long(path: Path, start: int, version: int) -> None:
    """Rows of 2 KB with the version that wrote them: 30 MB on the wire, more than a server reads ahead."""
    rows = LONG_GROUPS * LONG_ROWS
    texts = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["shuffled " * 220])
    table = pa.table({"id": np.arange(start, start + rows), "version": pa.array([version] * rows, pa.int32())})
    pq.write_table(table.append_column("text", texts), path, store_schema=False, row_group_size=LONG_ROWS)


def replaced(path: Path, start: int) -> None:
    write_long(path.with_name("_new"), start, 1)
    path.with_name("_new").rename(path)


def deleted(path: Path, start: int) -> None:
    path.unlink()


@pytest.fixture
def long_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "long"
    folder.mkdir()
    for file in range(LONG_FILES):
        write_long(folder / f"{file}.parquet", file * LONG_GROUPS * LONG_ROWS, 0)
    return folder


def long_request(**changes: Any) -> dict[str, Any]:
    # Two lanes of row groups from both files, read one after another.
    request = {"dataset": "long", "plan": LONG_PLAN, "shuffle": True, "with_row_ids": True, "lanes": 2}
    return {**request, "window_rows": 64, "batch_size": 100, **changes}


@pytest.mark.parametrize("change", [replaced, deleted])
def test_changed_file_ends_a_shuffled_stream(long_folder: Path, serve: Serve, change: Callable[[Path, int], None]):
    running = serve({"long": long_folder})
    request = long_request(seed=6)
    sizes = [LONG_ROWS] * (LONG_FILES * LONG_GROUPS)
    want = Epoch(passing_rows(sizes), batch_size=100, shuffle=True, lanes=2, window_rows=64, seed=6).ids(0)
    with fl.connect(running.url) as connected:
        found = info(connected, request)
        reader = connected.do_get(found.endpoints[0].ticket)
        seen = [reader.read_chunk().data]
        change(long_folder / "1.parquet", LONG_GROUPS * LONG_ROWS)
        with pytest.raises(fl.FlightError) as caught:
            seen.extend(chunk.data for chunk in reader)
        error = translate(caught.value)
        assert error.code == "ABORTED", str(error)
        assert "snapshot changed" in str(error)
        assert "1.parquet" in str(error)
        for step, batch in enumerate(seen):
            assert row_ids(batch) == batch["id"].to_pylist() == want[step], f"step {step}"
            assert set(batch["version"].to_pylist()) == {0}, f"step {step}"
        # The ticket still names the snapshot that no longer exists.
        with pytest.raises(fl.FlightError, match="snapshot changed"):
            connected.do_get(found.endpoints[0].ticket).read_all()
    assert running.alive


def test_rejects_windows_beyond_the_memory_limit_with_both_numbers(long_folder: Path, serve: Serve):
    limit = 8_000_000
    running = serve({"long": long_folder}, "--memory-limit-bytes", str(limit))
    wide = {"outputs": [{"name": "x", "parts": [{"columns": ["id"] * 500}]}, *LONG_PLAN["outputs"]]}
    with fl.connect(running.url) as connected:
        error = failure(connected, long_request(plan=wide, window_rows=16_384, batch_size=1))
        assert error.code == "RESOURCE_EXHAUSTED", str(error)
        assert f"{limit}" in str(error).replace(",", "").replace("_", "")
        assert "--memory-limit-bytes" in str(error) or "window_rows" in str(error)
        reader = connected.do_get(info(connected, long_request(window_rows=16, batch_size=16)).endpoints[0].ticket)
        assert reader.read_chunk().data.num_rows == 16
        reader.cancel()
    assert running.alive
