"""The example `digits_images`: killed in mid-epoch, training on augmented images resumes to the same losses."""

from __future__ import annotations

import re

from harness.examples import run_example


def test_killed_training_on_images_resumes_to_the_same_losses():
    printed = run_example("digits_images.py")
    trained = re.search(r"uninterrupted: 6 epochs of 1437 images, (\d+) steps", printed)
    accuracy = re.search(r"accuracy: ([\d.]+)% of the kept digits", printed)
    assert trained, printed
    assert accuracy, printed
    assert float(accuracy[1]) > 90
    crops = re.search(r"crops: (\d+) of 1437 images differ between two epochs", printed)
    assert crops, printed
    assert int(crops[1]) > 1000
    killed = re.search(r"killed: by SIGKILL within step (\d+); the checkpoint is after (\d+) steps", printed)
    assert killed, printed
    assert int(trained[1]) > int(killed[1]) >= int(killed[2]) > 0
    assert re.search(r"resumed: \d+ steps, all with equal pixels and losses; final weights equal to the bit", printed)
