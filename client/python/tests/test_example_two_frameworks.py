"""The example `two_frameworks`: PyTorch and TensorFlow train on the same batches."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from harness.examples import example_module, run_example

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed; `make test-tensorflow` installs it",
)


def test_both_frameworks_read_the_same_batches_and_have_the_same_losses(tmp_path: Path):
    printed = run_example("two_frameworks.py", "--data", tmp_path)
    steps = re.findall(r"^ +(\d+) +([\d.]{10}) +([\d.]{10})$", printed, re.MULTILINE)
    assert [int(step) for step, *_ in steps] == [0, 1, 10, 100, 255]
    losses = [(float(ours), float(theirs)) for _, ours, theirs in steps]
    assert all(abs(ours - theirs) <= 1e-5 for ours, theirs in losses)
    # Both learn.
    assert losses[-1][0] < losses[0][0] / 2
    assert "256 batches of 2048 rows, equal to the bit" in printed


def test_a_difference_fails_the_example():
    frameworks = example_module("two_frameworks")
    ours = frameworks.Run([0.5, 0.25], ["a", "b"])
    assert list(frameworks.differences(ours, frameworks.Run([0.5, 0.25], ["a", "b"]))) == [0, 0]
    for theirs, message in (
        (frameworks.Run([0.5], ["a"]), "2 steps in PyTorch, 1 in TensorFlow"),
        (frameworks.Run([0.5, 0.25], ["a", "c"]), "step 1: the batches differ"),
        (frameworks.Run([0.5, 0.2502], ["a", "b"]), "step 1: losses .* differ by more than 1e-05"),
    ):
        with pytest.raises(SystemExit, match=message):
            list(frameworks.differences(ours, theirs))
