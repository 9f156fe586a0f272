"""The example `language_model`: killed in mid-epoch, fine-tuning on packed text resumes to the same losses."""

from __future__ import annotations

import re

from harness.examples import run_example


def test_killed_fine_tuning_resumes_to_the_same_losses():
    printed = run_example("language_model.py")
    losses = re.search(r"loss of unseen code: (\S+) before fine-tuning, (\S+) after", printed)
    assert losses, printed
    assert float(losses[2]) < float(losses[1])
    killed = re.search(
        r"killed: by SIGKILL within step (\d+), in epoch 2; the checkpoint is after (\d+) steps", printed
    )
    assert killed, printed
    assert 0 < int(killed[2]) <= int(killed[1])
    assert re.search(
        r"resumed: \d+ steps, all with equal sequences and losses; final weights equal to the bit", printed
    )
