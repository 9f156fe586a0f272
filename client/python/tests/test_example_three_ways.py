"""The example three_ways.py with less data. Its PySpark part is in server/tests/spark."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.examples import example_module, run_example

ROWS = 30_000
SMALL = ["--rows", str(ROWS), "--rounds", "1", "--batches", "20", "--cpu-seconds", "0.02"]


def values(rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The column that the example writes."""
    return np.random.default_rng(7).normal(50.0, 17.0, rows)


@dataclass
class Ran:
    """What the example printed and wrote."""

    printed: str
    raw: dict[str, Any]
    picture: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("three-ways")
    raw, picture = folder / "raw.json", folder / "curve.svg"
    drawn = ["--picture", picture] if importlib.util.find_spec("matplotlib") else []
    printed = run_example("three_ways.py", *SMALL, "--json", raw, *drawn)
    return Ran(printed, json.loads(raw.read_text()), picture)


def test_results_are_numpys_to_the_bit_and_the_fit_is_exact(ran: Ran):
    raw = ran.raw
    mean, std = raw["scale"]["mean"], raw["scale"]["std"]
    x = values(ROWS)
    assert mean == float(sum(map(Fraction, x.tolist())) / ROWS)
    assert std == pytest.approx(float(x.std()), rel=1e-15)
    expected = np.clip((x - mean) / std, -3.0, 3.0)
    assert 0 < (np.abs(expected) == 3.0).sum() < ROWS / 100
    assert raw["result_sha256"] == hashlib.sha256(expected.tobytes()).hexdigest()

    assert "all 3 results are equal to the bit" in ran.printed
    assert set(raw["rounds"]) == {"Python, row by row", "NumPy on Arrow batches", "Forebay stream"}
    sizes = {str(10**power) for power in range(7)}
    assert {name: set(curve) for name, curve in raw["curve_seconds_per_value"].items()} == {
        "NumPy on Arrow batches": sizes,
        "Forebay stream": sizes,
    }
    assert len(re.findall(r"^ *10*(?:,000)* ", ran.printed, re.MULTILINE)) == 7


@pytest.mark.parametrize(
    ("change", "error"),
    [(lambda found: np.nextafter(found, 9), "30,000 values differ; value 0 is"), (lambda found: found[:-1], "29,999")],
)
def test_a_result_that_differs_in_one_bit_or_row_ends_the_example(change: Any, error: str):
    example = example_module("three_ways")
    expected = values(ROWS)
    example.check_equal(example.Way("same", lambda rows, size: values(rows)), ROWS, 1, expected)
    with pytest.raises(SystemExit, match=f"other: {error}"):
        example.check_equal(example.Way("other", lambda rows, size: change(values(rows))), ROWS, 1, expected)


def test_cpu_seconds_contain_those_of_ended_children():
    measuring = example_module("measuring")
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    _, seconds = measuring.measured(lambda: subprocess.run([sys.executable, "-c", busy], check=True))
    assert seconds.cpu >= 0.45


def test_the_picture_has_a_curve_for_each_way(ran: Ran):
    pytest.importorskip("matplotlib", reason="part of the test requirements; absent only where someone left it out")
    text = ran.picture.read_text()
    for name in ("NumPy on Arrow batches", "Forebay stream", "rows per batch", "CPU ns per value"):
        assert f">{name}</text>" in text
