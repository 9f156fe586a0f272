"""The example `dlrm`: every row once, a model that learns, and a loop that says what it is bound by."""

from __future__ import annotations

import re
from pathlib import Path

from harness.examples import run_example

ROWS = 60_000


def test_the_loop_says_what_it_is_bound_by(tmp_path: Path) -> None:
    printed = run_example("dlrm.py", "--data", tmp_path, "--rows", str(ROWS), "--every", "10")
    verdicts = r"bound by (?:trainer|wire|storage|functions|CPU)$"
    assert len(re.findall(rf"^step +\d+ .* {verdicts}", printed, re.MULTILINE)) == 2
    assert re.search(rf"^reading only .* {verdicts}", printed, re.MULTILINE)
    counted = re.search(r"^([\d,]+) rows trained and ([\d,]+) kept", printed, re.MULTILINE)
    assert counted, printed
    trained, kept = (int(number.replace(",", "")) for number in counted.groups())
    assert trained + kept == ROWS
    losses = re.search(r"^loss on the rows kept ([\d.]+), that of the click rate ([\d.]+)$", printed, re.MULTILINE)
    assert losses, printed
    assert float(losses[1]) < float(losses[2])
