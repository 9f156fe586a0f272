"""SQL over files whose statistics are wrong has every row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.parquet.surgery import dissect
from harness.parquet.wrong_statistics import OLD, by_signed_bytes, restate
from harness.prepare import prepare, written

TEXTS = pa.array(["aé", "az", "b", "zz", "éa", "中", "a", "b", "c"])


def rows(folder: Path, condition: str) -> int:
    out = folder.parent / f"out {len(list(folder.parent.iterdir()))}"
    assert prepare(f"SELECT * FROM t WHERE {condition}", {"t": folder}, out).code == 0
    return written(out).num_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    return tmp_path / "t"


def test_bounds_of_row_groups(folder: Path):
    file = dissect(pa.table({"v": TEXTS}), row_group_size=3)
    groups = [TEXTS[start : start + 3] for start in (0, 3, 6)]
    restate(file, groups, "parquet-mr version 1.8.1 (build 4aba4da)", OLD, by_signed_bytes)
    (folder / "a.parquet").write_bytes(file.build())
    for value in ("aé", "zz", "中", "c"):
        assert rows(folder, f"v = '{value}'") == 1, value


def test_bounds_of_pages(folder: Path):
    """The writer is trusted, so that the bounds of the row group keep it."""
    values = pa.array([f"{letter}{i:03d}" for letter in "abc" for i in range(300)])
    pq.write_table(
        pa.table({"v": values}),
        folder / "a.parquet",
        use_dictionary=False,
        compression="none",
        data_page_size=1000,
        write_batch_size=100,
        write_page_index=True,
    )
    data = (folder / "a.parquet").read_bytes()
    # Bounds of pages are behind the pages, where every value occurs once.
    pages_end = data.rindex(b"c299", 0, data.index(b"c299") + 4) + 4
    index = data[pages_end:]
    assert index.count(b"b100") >= 1
    (folder / "a.parquet").write_bytes(data[:pages_end] + index.replace(b"b", b"a"))
    assert rows(folder, "v = 'b100'") == 1


def test_bounds_of_floats_leave_out_nan(folder: Path):
    """NaN is greater than every number."""
    numbers = pa.array([1.0, float("nan"), 2.0])
    pq.write_table(pa.table({"v": numbers}), folder / "a.parquet")
    assert rows(folder, "v > 5") == 1
