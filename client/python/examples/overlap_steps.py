"""The training steps of overlap.py: a wait, and torch on one core."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

NUMBERS, TEXTS = 13, 6
WORDS = 5_000
SEED = 7

Batch = dict[str, Tensor]
Step = Callable[[Batch], float]
"""Trains on a batch and returns the loss."""


def wait(seconds: float) -> Step:
    """Return a step that waits, as for an accelerator."""

    def step(_: Batch) -> float:
        time.sleep(seconds)
        return 0.0

    return step


class Network:
    """A small network. A step trains it on a batch, or on the rows of several or of a part of it."""

    def __init__(self, share: float) -> None:
        """Make a network whose steps train on the rows of `share` batches: more than 1 for several passes."""
        torch.manual_seed(SEED)
        self._share = share
        self._embeddings = nn.ModuleList(nn.Embedding(WORDS + 1, 8) for _ in range(TEXTS))
        self._layers = nn.Sequential(nn.Linear(NUMBERS + 8 * TEXTS, 32), nn.ReLU(), nn.Linear(32, 1))
        self._optimizer = torch.optim.SGD([*self._embeddings.parameters(), *self._layers.parameters()], lr=0.1)
        self._loss_of = nn.BCEWithLogitsLoss()

    @classmethod
    def pass_seconds(cls, rows: int) -> float:
        """Measure a step on a batch of `rows` rows."""
        columns = {"dense": torch.zeros(rows, NUMBERS), "label": torch.zeros(rows)}
        batch = columns | {"cats": torch.randint(WORDS, (rows, TEXTS))}
        network = cls(1.0)
        return statistics.median(timed(lambda: network.step(batch)) for _ in range(10))

    def step(self, batch: Batch) -> float:
        """Train, and return the loss of the last pass."""
        loss, rest = 0.0, max(1, round(self._share * len(batch["label"])))
        while rest > 0:
            loss = self._pass({name: column[:rest] for name, column in batch.items()})
            rest -= len(batch["label"])
        return loss

    def _pass(self, batch: Batch) -> float:
        self._optimizer.zero_grad()
        columns = zip(self._embeddings, batch["cats"].unbind(dim=1), strict=True)
        features = torch.cat([batch["dense"], *(embed(column) for embed, column in columns)], dim=1)
        loss = self._loss_of(self._layers(features).squeeze(1), batch["label"])
        loss.backward()
        self._optimizer.step()
        return loss.item()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of the work."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
