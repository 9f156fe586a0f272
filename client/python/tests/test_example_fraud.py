"""The example `fraud`: features are those of pandas, classes are balanced, and a killed run resumes."""

from __future__ import annotations

import re

from harness.examples import run_example


def test_frauds_are_found_by_earlier_payments():
    printed = run_example("fraud.py", "--cards", "300")
    assert re.search(r"features: 7 of [\d,]+ later payments, as pandas computes them", printed), printed
    epoch = re.search(r"an epoch: ([\d,]+) payments, ([\d,]+) of them frauds", printed)
    assert epoch, printed
    drawn, frauds = (int(number.replace(",", "")) for number in epoch.groups())
    assert abs(frauds - drawn / 2) <= 1
    assert re.search(r"killed within step \d+, resumed after step \d+: \d+ steps with equal rows and losses", printed)
    ranked = re.search(r"highest: (\d+)% with earlier payments, (\d+)% without", printed)
    assert ranked, printed
    assert int(ranked[1]) > int(ranked[2])
