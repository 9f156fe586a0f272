"""The example `serving_rows`: served features are those of the training, and a difference of one bit is found."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from harness.examples import example_module, run_example


def test_served_rows_have_the_features_of_the_training(tmp_path: Path) -> None:
    printed = run_example("serving_rows.py", "--data", tmp_path, "--requests", "200")
    assert "200 requests of one row: 800 features, equal to the stream's to the bit" in printed
    for name in (r"features \(DoExchange\)", "features and the model"):
        assert re.search(rf"^{name} +[\d,]+ +[\d,]+ +[\d,]+$", printed, re.MULTILINE)


def test_a_difference_of_one_bit_fails_the_example() -> None:
    example = example_module("serving_rows")
    model = example.Late(3)
    row = {"dense": np.ones((1, 3), np.float32), "carrier": np.array([[1]], np.int32)[:, 0]}
    served = example.Served([row], [example.predicted(model, row)])
    assert example.compare(served, [row], model) == 4
    other = {**row, "dense": np.nextafter(row["dense"], np.float32(2))}
    with pytest.raises(SystemExit, match="request 0: dense is"):
        example.compare(served, [other], model)
