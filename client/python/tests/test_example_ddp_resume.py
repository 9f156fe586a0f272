"""The example `ddp_resume`: killed in mid-epoch, distributed training resumes with other numbers of processes."""

from __future__ import annotations

import re
from pathlib import Path

from harness.examples import run_example


def test_killed_training_resumes_with_the_same_rows_and_losses(tmp_path: Path):
    printed = run_example("ddp_resume.py", "--data", tmp_path)
    assert "killed: both processes, by SIGKILL within step 25; the checkpoint is after 20 steps" in printed
    found = re.findall(r"^ +(\d) +(\d+)  all equal +(equal to the bit|within \S+) +(.+)$", printed, re.MULTILINE)
    rows = {int(world_size): (int(batch_rows), losses, weights) for world_size, batch_rows, losses, weights in found}
    assert list(rows) == [2, 1, 4]
    assert rows[2] == (512, "equal to the bit", "equal to the bit")
    for world_size in (1, 4):
        assert rows[world_size][0] * world_size == 1024
