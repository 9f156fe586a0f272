"""A small convolutional network on images in Parquet, killed in mid-epoch, and resumed to the same losses.

The digits of scikit-learn are written as PNG to Parquet. The server decodes them, crops each at random and resizes
it; the training process receives numbers. A random crop depends on the seed, the epoch and the row alone, so a batch,
its augmentation included, is the same in every run. The training is killed by SIGKILL within a step and resumes from
its last checkpoint. Asserted:

- every step after the kill has the pixels and, to the bit, the loss of the uninterrupted run;
- the final weights are equal to the bit;
- every epoch has other crops of the same images;
- the accuracy on digits that were not seen in training is at least `ACCURACY_MIN`.

Requires forebay-server (see `forebay.local`), torch, scikit-learn and Pillow.
"""

import argparse
import io
import signal
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from resuming import Batch, Run, check, check_equal, in_process, train_steps
from sklearn.datasets import load_digits
from torch import nn

import forebay as fb
from forebay.torch import FlightDataset

SIZE, CLASSES = 16, 10
BATCH_ROWS = 64
EPOCHS = 6
KEPT_EVERY = 5  # Every fifth digit is kept for the evaluation.
ACCURACY_MIN = 0.9
MEAN, DEVIATION = 0.3, 0.37  # Of pixels between 0 and 1.


@dataclass(frozen=True, kw_only=True)
class Job(Run):
    """A run of training and the server that it reads from."""

    url: str


class Model(nn.Module):
    """Two convolutions, each with a pooling, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (SIZE // 4) ** 2, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of images [rows, height, width, channels]."""
        return self.layers(images.permute(0, 3, 1, 2))

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the mean loss of a batch."""
        return nn.functional.cross_entropy(self(batch["image"]), batch["digit"].long())


def plan(*, augmented: bool) -> fb.Plan:
    """Return the plan for training, or for evaluation, which has whole images."""
    # The scale and the ratio of a random crop.
    crop, scale, ratio = ("random", (0.7, 1.0), (0.85, 1.18)) if augmented else ("none", None, None)
    image = fb.cols("png").decode_image(
        SIZE, SIZE, channels=1, normalize=([MEAN], [DEVIATION]), crop=crop, scale=scale, ratio=ratio
    )
    return fb.Plan(outputs={"image": image, "digit": fb.cols("digit")})


def images(job: Job) -> FlightDataset:
    """Return the stream of the training."""
    return FlightDataset(job.url, "training", plan(augmented=True), batch_size=BATCH_ROWS, shuffle=True, seed=7)


def train(job: Job) -> None:
    """Train, from the checkpoint if there is one."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    train_steps(job, model, optimizer, images(job), model.loss, "image")


def accuracy(job: Job) -> float:
    """Return the share of the kept digits that the trained model recognizes."""
    model = Model()
    model.load_state_dict(torch.load(job.weights))
    data = FlightDataset(job.url, "kept", plan(augmented=False), batch_size=BATCH_ROWS)
    with torch.no_grad():
        right = [model(batch["image"]).argmax(1) == batch["digit"] for batch in data]
    return torch.cat(right).double().mean().item()


def differing_crops(job: Job) -> int:
    """Return the number of images whose pixels differ between the first two epochs."""
    epochs: list[np.ndarray] = []
    with fb.connect(job.url) as client:
        for epoch in range(2):
            batches = client.stream("training", plan(augmented=True), batch_size=BATCH_ROWS, seed=7, epoch=epoch)
            epochs.append(np.concatenate([batch["image"] for batch in batches]))
    return int((epochs[0] != epochs[1]).any(axis=(1, 2, 3)).sum())


def png(pixels: np.ndarray) -> bytes:
    """Return a digit, whose pixels are between 0 and 16, as PNG."""
    file = io.BytesIO()
    Image.fromarray(np.minimum(pixels * 16, 255).astype(np.uint8)).save(file, "png")
    return file.getvalue()


def write(folder: Path, digits: np.ndarray, answers: np.ndarray) -> str:
    """Write digits as a dataset; return its folder."""
    folder.mkdir()
    table = pa.table({"png": [png(pixels) for pixels in digits], "digit": pa.array(answers.astype(np.int32))})
    pq.write_table(table, folder / "digits.parquet", row_group_size=200)
    return str(folder)


def main() -> None:
    """Train without and with a kill, and compare."""
    argparse.ArgumentParser(description="Kill the training of a network on images, and resume it.").parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pixels, answers = load_digits(return_X_y=True)
        digits = np.asarray(pixels).reshape(-1, 8, 8)
        kept = np.arange(len(digits)) % KEPT_EVERY == 0
        url = fb.local(
            training=write(folder / "training", digits[~kept], answers[~kept]),
            kept=write(folder / "kept", digits[kept], answers[kept]),
        )
        whole = Job(folder=folder / "whole", epochs=EPOCHS, url=url)
        check(in_process(train, whole) == 0, "the uninterrupted training failed")
        steps, rows, share = len(whole.records()), int((~kept).sum()), accuracy(whole)
        print(f"uninterrupted: {EPOCHS} epochs of {rows} images, {steps} steps")
        print(f"accuracy: {share:.2%} of the kept digits")

        changed = differing_crops(whole)
        print(f"crops: {changed} of {rows} images differ between two epochs")
        check(changed > rows // 2, "the epochs have the same crops")

        killed_step = steps // 2 + steps // EPOCHS // 2 + 5
        killed = Job(folder=folder / "killed", epochs=EPOCHS, url=url, killed_step=killed_step)
        check(in_process(train, killed) == -signal.SIGKILL, "the training was not killed")
        saved = killed.saved_steps()
        print(f"killed: by SIGKILL within step {killed_step}; the checkpoint is after {saved} steps")
        resumed = replace(killed, killed_step=None)
        check(in_process(train, resumed) == 0, "resuming failed")
        again = check_equal(resumed, whole) - saved
        check(share >= ACCURACY_MIN, f"only {share:.2%} of the kept digits are right")
        print(f"resumed: {again} steps, all with equal pixels and losses; final weights equal to the bit")


if __name__ == "__main__":
    main()
