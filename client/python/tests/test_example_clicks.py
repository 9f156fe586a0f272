"""The second half of the demo trains on equal batches and reaches the same loss both ways."""

from __future__ import annotations

import re
from pathlib import Path

from harness.examples import run_example

ROWS = 30_000


def test_the_demo_of_clicks_compares_equal_batches(tmp_path: Path) -> None:
    output = run_example("clicks.py", "--data", tmp_path, "--rows", str(ROWS))
    assert output.startswith(f"{ROWS:,} generated clicks in {tmp_path / 'clicks'}")
    losses = re.search(r"^mean loss of the epoch +([\d.]+) +([\d.]+)$", output, re.MULTILINE)
    assert losses, output
    assert losses[1] == losses[2]
    assert 0.2 < float(losses[1]) < 0.8
    assert f"0 of {13 * ROWS:,} in dense, 0 of {26 * ROWS:,} in cats, 0 of {ROWS:,} in label" in output
    written = re.search(r"^bytes of features written +0 +([\d,]+)$", output, re.MULTILINE)
    assert written, output
    assert int(written[1].replace(",", "")) == sum(f.stat().st_size for f in (tmp_path / "clicks_old_way").iterdir())
