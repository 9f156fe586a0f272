"""A small network that predicts whether a flight is late, and its training loop.

The loop is independent of the source of the batches: it reads an iterable of dicts of tensors per epoch.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm import tqdm

Batch = dict[str, Tensor]

EPOCHS = 3
BATCH_ROWS = 1024
LEARNING_RATE = 4e-3
SEED = 7


class FlightModel(nn.Module):
    """Embeddings of the categories, concatenated with the dense features, and three linear layers to a logit."""

    def __init__(self, dense_width: int, category_sizes: Sequence[int], hidden: int = 256) -> None:
        """Initialize with the number of indices of each column of `cats`, including that of unknown values."""
        super().__init__()
        widths = [min(16, 1 + size // 2) for size in category_sizes]
        self.embeddings = nn.ModuleList(map(nn.Embedding, category_sizes, widths))
        self.layers = nn.Sequential(
            nn.Linear(dense_width + sum(widths), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, dense: Tensor, cats: Tensor) -> Tensor:
        """Return a logit for each row."""
        columns = zip(self.embeddings, cats.unbind(dim=1), strict=True)
        embedded = [embed(column) for embed, column in columns]
        return self.layers(torch.cat([dense, *embedded], dim=1)).squeeze(1)


@dataclass
class Pass:
    """Time and volume of passes over the data."""

    seconds: float = 0.0
    wait_seconds: float = 0.0
    rows: int = 0
    bytes: int = 0

    def measured(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches, measuring the wait for each and its size."""
        waiting_since = time.perf_counter()
        for batch in batches:
            self.wait_seconds += time.perf_counter() - waiting_since
            self.rows += len(batch["label"])
            self.bytes += sum(tensor.nbytes for tensor in batch.values())
            yield batch
            waiting_since = time.perf_counter()
        self.wait_seconds += time.perf_counter() - waiting_since


def train(model: FlightModel, batches_of: Callable[[int], Iterable[Batch]], steps: int, title: str) -> Pass:
    """Train for `EPOCHS` epochs of `steps` batches each, under a progress bar."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=EPOCHS * steps)
    loss_of = nn.BCEWithLogitsLoss()
    totals = Pass()
    started = time.perf_counter()
    model.train()
    # Update a terminal often and a log file rarely.
    interval_s = 0.1 if sys.stderr.isatty() else 5.0
    with tqdm(total=EPOCHS * steps, desc=title, unit="step", mininterval=interval_s) as bar:
        for epoch in range(EPOCHS):
            loss_sum, losses = torch.zeros(()), 0
            for batch in totals.measured(batches_of(epoch)):
                optimizer.zero_grad()
                loss = loss_of(model(batch["dense"], batch["cats"]), batch["label"])
                loss.backward()
                optimizer.step()
                schedule.step()
                loss_sum, losses = loss_sum + loss.detach(), losses + 1
                bar.update()
            bar.set_postfix(epoch=epoch + 1, loss=f"{loss_sum.item() / losses:.3f}")
    totals.seconds = time.perf_counter() - started
    return totals


def read_only(batches: Iterable[Batch]) -> Pass:
    """Read an epoch without training, to measure the maximum rate."""
    totals = Pass()
    started = time.perf_counter()
    for _ in totals.measured(batches):
        pass
    totals.seconds = time.perf_counter() - started
    return totals


@dataclass(frozen=True)
class Score:
    """Accuracy of a model on held-out rows, and of always predicting the majority class."""

    rows: int
    accuracy: float
    majority: float


@torch.no_grad()
def score(model: FlightModel, batches: Iterable[Batch]) -> Score:
    """Measure the share of rows that the model labels correctly."""
    model.eval()
    correct = late = rows = 0
    for batch in batches:
        truth = batch["label"] > 0.5
        correct += int(((model(batch["dense"], batch["cats"]) > 0) == truth).sum())
        late += int(truth.sum())
        rows += len(truth)
    return Score(rows, correct / rows, max(late, rows - late) / rows)
