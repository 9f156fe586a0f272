"""The example `pipeline_models`: its models are as accurate as those trained on the whole table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.examples import example_module, run_example


def test_models_from_the_stream_are_as_accurate_as_on_the_whole_table(tmp_path: Path):
    printed = run_example("pipeline_models.py", "--data", tmp_path)
    rows = re.findall(r"^(\S+) +([\d.]+)% +(\S+) +([\d.]+)% +[+-]([\d.]+)% +([\d.]+)%$", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["SGDClassifier.partial_fit", "torch.nn.Linear", "xgboost.train"]
    for _, streamed, _, whole, difference, noise in rows:
        assert float(streamed) > 90
        assert float(whole) > 90
        assert float(difference) <= float(noise) < 0.5


def test_a_difference_beyond_noise_fails_the_example():
    models = example_module("pipeline_models")
    whole = models.Result("whole", 0.91, 64_197)
    assert "0.34%" in models.compared(models.Result("stream", 0.913, 64_197), whole)
    for accuracy in (0.906, 0.914):
        with pytest.raises(SystemExit, match="differs from whole's 91.00% by more than 0.34%"):
            models.compared(models.Result("stream", accuracy, 64_197), whole)
