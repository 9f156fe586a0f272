"""A small network that says whether a flight will be late, and the loop that trains it.

The loop is the same whoever prepares the batches: it takes an iterable of dicts of tensors for each epoch.
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
    """Embeddings of the categories beside the dense features, then three linear layers to a logit."""

    def __init__(self, dense_width: int, category_sizes: Sequence[int], hidden: int = 256) -> None:
        """Take the count of indices of each column of `cats`, the one for unseen values included."""
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
    """What passes over the data took, and what they moved."""

    seconds: float = 0.0
    wait_seconds: float = 0.0
    rows: int = 0
    bytes: int = 0

    def watched(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Pass the batches on, adding the time until each of them and its size."""
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
    taken = Pass()
    started = time.perf_counter()
    model.train()
    # A log file gets a line now and then, a terminal a bar that moves.
    interval_s = 0.1 if sys.stderr.isatty() else 5.0
    with tqdm(total=EPOCHS * steps, desc=title, unit="step", mininterval=interval_s) as bar:
        for epoch in range(EPOCHS):
            loss_sum, losses = torch.zeros(()), 0
            for batch in taken.watched(batches_of(epoch)):
                optimizer.zero_grad()
                loss = loss_of(model(batch["dense"], batch["cats"]), batch["label"])
                loss.backward()
                optimizer.step()
                schedule.step()
                loss_sum, losses = loss_sum + loss.detach(), losses + 1
                bar.update()
            bar.set_postfix(epoch=epoch + 1, loss=f"{loss_sum.item() / losses:.3f}")
    taken.seconds = time.perf_counter() - started
    return taken


def read_only(batches: Iterable[Batch]) -> Pass:
    """Read an epoch and do nothing with it: how fast batches could come."""
    taken = Pass()
    started = time.perf_counter()
    for _ in taken.watched(batches):
        pass
    taken.seconds = time.perf_counter() - started
    return taken


@dataclass(frozen=True)
class Score:
    """How a model does on rows it has not seen, beside always saying what most rows are."""

    rows: int
    accuracy: float
    majority: float


@torch.no_grad()
def score(model: FlightModel, batches: Iterable[Batch]) -> Score:
    """Count the rows that the model labels rightly."""
    model.eval()
    right = late = rows = 0
    for batch in batches:
        truth = batch["label"] > 0.5
        right += int(((model(batch["dense"], batch["cats"]) > 0) == truth).sum())
        late += int(truth.sum())
        rows += len(truth)
    return Score(rows, right / rows, max(late, rows - late) / rows)
