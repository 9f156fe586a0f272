"""A small click model, embeddings and two linear layers, and its training loop over one epoch.

The loop is independent of the source of the batches.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from flights_model import Batch, Pass
from torch import Tensor, nn

BATCH_ROWS = 4096
EMBEDDING_WIDTH = 8
LEARNING_RATE = 0.1
SEED = 7


class ClickModel(nn.Module):
    """One sparse table of embeddings for all categories, concatenated with the numbers, and two layers to a logit."""

    offsets: Tensor

    def __init__(self, dense_width: int, category_sizes: Sequence[int], hidden: int = 64) -> None:
        """Initialize with the number of indices of each column of `cats`, including that of unknown values."""
        super().__init__()
        sizes = torch.tensor([0, *category_sizes])
        self.register_buffer("offsets", sizes.cumsum(0)[:-1])
        self.embeddings = nn.Embedding(int(sizes.sum()), EMBEDDING_WIDTH, sparse=True)
        self.layers = nn.Sequential(
            nn.Linear(dense_width + len(category_sizes) * EMBEDDING_WIDTH, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, dense: Tensor, cats: Tensor) -> Tensor:
        """Return a logit for each row."""
        embedded = self.embeddings(cats + self.offsets).flatten(1)
        return self.layers(torch.cat([dense, embedded], dim=1)).squeeze(1)


@dataclass
class Trained:
    """An epoch of training."""

    first_step_seconds: float
    """Seconds from the first request for a batch to the end of the first step."""
    total: Pass
    loss: float
    """The mean over all steps."""


def train(dense_width: int, category_sizes: Sequence[int], batches: Iterable[Batch]) -> Trained:
    """Train a new model with reproducible initial weights on each batch once."""
    torch.manual_seed(SEED)
    model = ClickModel(dense_width, category_sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loss_of = nn.BCEWithLogitsLoss()
    total = Pass()
    losses: list[Tensor] = []
    first_step_seconds = 0.0
    started = time.perf_counter()
    for batch in total.measured(batches):
        optimizer.zero_grad()
        loss = loss_of(model(batch["dense"], batch["cats"]), batch["label"])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        first_step_seconds = first_step_seconds or time.perf_counter() - started
    total.seconds = time.perf_counter() - started
    return Trained(first_step_seconds, total, torch.stack(losses).mean().item())
