"""The example three_ways.py with a real row UDF and a real pandas UDF."""

from __future__ import annotations

import json
from pathlib import Path

from harness.examples import run_example


def test_row_udf_and_pandas_udf_are_equal_to_the_stream_to_the_bit(tmp_path: Path):
    small = ["--rows", "30000", "--rounds", "1", "--batches", "5", "--cpu-seconds", "0"]
    printed = run_example("three_ways.py", *small, "--spark", "--json", tmp_path / "raw.json")
    assert "all 5 results are equal to the bit" in printed
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert {"PySpark row UDF", "PySpark pandas UDF"} <= set(raw["rounds"])
    assert len(raw["curve_seconds_per_value"]["PySpark pandas UDF"]) == 7
