"""The example `group_models`: its models have the coefficients that the data was made with, and those of pandas."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from harness.examples import example_module, run_example


def test_models_of_groups_have_the_true_coefficients(tmp_path: Path):
    printed = run_example("group_models.py", "--data", tmp_path, "--jobs", "2")
    slopes = dict(re.findall(r"^known-(\S+): slope ([\d.]+) ", printed, re.MULTILINE))
    assert {made: abs(float(made) - float(slope)) < 0.1 for made, slope in slopes.items()} == {"2.5": True, "3.0": True}
    assert printed.startswith("300 models of ")
    assert len(list((tmp_path / "models").glob("*.joblib"))) == 300


def test_a_wrong_coefficient_fails_the_example():
    models = example_module("group_models")
    good = models.Fitted("a", 2.5, 1.0, 0.0, 2000)
    truth = {"a": (2.5, 1.0, 0.01)}
    assert models.check_truth([good], truth) < 1
    with pytest.raises(SystemExit, match="standard errors off"):
        models.check_truth([dataclasses.replace(good, load=2.6)], truth)
    with pytest.raises(SystemExit, match="coefficients differ"):
        models.largest_difference([good], [dataclasses.replace(good, heat=1.001)])
    with pytest.raises(SystemExit, match="groups differ"):
        models.largest_difference([good], [dataclasses.replace(good, rows=1999)])
