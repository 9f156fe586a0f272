"""The demo trains on the stream and on prepared files, and reaches the same accuracy."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import forebay as fb
from harness.examples import run_example


def test_the_demo_reaches_the_same_accuracy_both_ways(tmp_path: Path) -> None:
    output = run_example("flights.py", "--data", tmp_path)
    accuracy = re.search(r"^held-out accuracy +([\d.]+)% +([\d.]+)%$", output, re.MULTILINE)
    assert accuracy, output
    streamed, prepared, baseline = float(accuracy[1]), float(accuracy[2]), 79.01
    assert abs(streamed - prepared) < 0.5
    assert min(streamed, prepared) > baseline + 5


def test_a_plan_can_be_replaced_field_by_field() -> None:
    plan = fb.Plan(outputs={"x": fb.cols("x")}, join=fb.join("t", on="k", columns=["v"]))
    assert dataclasses.replace(plan, filter="x > 0") == plan.with_filter("x > 0")
