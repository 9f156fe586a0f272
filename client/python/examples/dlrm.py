"""Train a small DLRM on rows in the shape of Criteo's logs, in a loop that says what it is bound by.

The model is that of Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems"
(2019): a network for the numbers, an embedding for each category, the dot products of all pairs of these vectors, and a
network on top. Vocabularies, logarithms and scales are computed by the server during the epoch. The program fails if a
row is lost or repeated, or if the model does not beat the click rate on rows that it was not trained on.

    .venv/bin/python client/python/examples/dlrm.py

Requires forebay-server (see `forebay.local`).
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from clicks_data import CATEGORIES, LABEL, NUMBERS, generate_once
from torch import Tensor, nn

import forebay as fb
from forebay.torch import FlightDataset

DATASET = "clicks"
PLAN = fb.Plan(
    outputs={
        "dense": fb.cols(*NUMBERS).fill_null(0).log1p().standardize(),
        "cats": fb.cols(*CATEGORIES).vocab(min_count=10),
        "label": fb.cols(LABEL),
    },
)
BATCH_ROWS = 2048
SEED = 7
WIDTH = 16
LEARNING_RATE = 0.05
# Share of the rows that is kept for validation.
KEPT = 0.1


class Dlrm(nn.Module):
    """Numbers [n, 13] and indices [n, 26] to a logit."""

    def __init__(self, category_sizes: Sequence[int]) -> None:
        """Initialize with the number of indices of each category, including that of unknown values."""
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(len(NUMBERS), 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU())
        tables = [nn.Embedding(size, WIDTH, sparse=True) for size in category_sizes]
        for table in tables:
            nn.init.uniform_(table.weight, -0.05, 0.05)
        self.embeddings = nn.ModuleList(tables)
        vectors = 1 + len(category_sizes)
        # The dot products of all pairs of different vectors.
        self.pairs = torch.tril_indices(vectors, vectors, offset=-1).unbind()
        self.top = nn.Sequential(nn.Linear(WIDTH + len(self.pairs[0]), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, cats: Tensor) -> Tensor:
        """Return a logit for each row."""
        numbers = self.bottom(dense)
        looked_up = [table(cats[:, index]) for index, table in enumerate(self.embeddings)]
        vectors = torch.stack([numbers, *looked_up], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([numbers, products], dim=1)).squeeze(1)


@dataclass
class Report:
    """What a loop prints of its progress."""

    data: FlightDataset
    every: int
    began: float = 0.0
    steps: int = 0
    losses: float = 0.0

    def step(self, loss: float) -> None:
        """Count a step, and print a line after every few."""
        self.began = self.began or time.perf_counter()
        self.steps, self.losses = self.steps + 1, self.losses + loss
        if self.steps % self.every == 0:
            print(f"step {self.steps:>5}  mean loss {self.losses / self.every:.4f}  {bound(self.data)}", flush=True)
            self.losses = 0.0


def bound(data: FlightDataset) -> str:
    """Return what the loop is bound by, from the statistics of the stream."""
    stats = {name: value for name, value in data.stats().items() if isinstance(value, (int, float))}
    # From the first batch on, whose wait is that of the start.
    seconds = max(stats["loop_seconds"] - stats["first_wait_seconds"], 1e-9)
    waited = (stats["wait_seconds"] - stats["first_wait_seconds"]) / seconds
    return f"{stats['rows'] / seconds:>9,.0f} rows/s  waiting {waited:>4.0%}  bound by {data.stats()['bound_by']}"


def train(model: Dlrm, data: FlightDataset, every: int) -> None:
    """Train an epoch."""
    tables = torch.optim.SGD(model.embeddings.parameters(), lr=LEARNING_RATE * 10)
    networks = torch.optim.Adagrad([*model.bottom.parameters(), *model.top.parameters()], lr=LEARNING_RATE)
    report = Report(data, every)
    for batch in data:
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch["dense"], batch["cats"]), batch["label"])
        tables.zero_grad()
        networks.zero_grad()
        loss.backward()
        tables.step()
        networks.step()
        report.step(loss.item())


def validate(model: Dlrm, data: FlightDataset) -> tuple[float, float, int]:
    """Return the mean loss of the model, that of the click rate, and the number of rows."""
    total, clicks, rows = 0.0, 0.0, 0
    with torch.inference_mode():
        for batch in data:
            logits = model(batch["dense"], batch["cats"])
            total += nn.functional.binary_cross_entropy_with_logits(logits, batch["label"], reduction="sum").item()
            clicks += batch["label"].sum().item()
            rows += len(logits)
    rate = clicks / rows
    return total / rows, -rate * math.log(rate) - (1 - rate) * math.log(1 - rate), rows


def main() -> None:
    """Read, train and validate."""
    parser = argparse.ArgumentParser(description="Train a DLRM, and print what the loop is bound by.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    parser.add_argument("--rows", type=int, default=1_500_000, help="rows to generate (default: %(default)s)")
    parser.add_argument("--every", type=int, default=100, help="steps between two lines (default: %(default)s)")
    given = parser.parse_args()
    files = generate_once(given.data / DATASET, given.rows)
    url = fb.local(clicks=files[0].parent)
    # The server computes next to the training loop.
    torch.set_num_threads(1)
    torch.manual_seed(SEED)

    with fb.connect(url) as client:
        # Both learn from the rows of the first.
        plan, kept_plan = PLAN.split(val=KEPT, seed=SEED)
        fitted = client.fit(DATASET, plan)
    options: dict[str, Any] = {"batch_size": BATCH_ROWS, "seed": SEED}

    reading = FlightDataset(url, DATASET, fitted, shuffle=True, **options)
    for _ in reading:
        pass
    print(f"{'reading only':<30}  {bound(reading)}")
    print(f"  {reading.stats()['because']}")

    model = Dlrm(list(fitted.cardinalities["cats"].values()))
    training = FlightDataset(url, DATASET, fitted, shuffle=True, **options)
    train(model, training, given.every)
    print(f"{'training':<30}  {bound(training)}")
    print(f"  {training.stats()['because']}")

    loss, baseline, kept = validate(model, FlightDataset(url, DATASET, kept_plan, **options))
    trained = int(training.stats()["rows"])
    print(f"{trained:,} rows trained and {kept:,} kept: each of the {given.rows:,} rows once")
    print(f"loss on the rows kept {loss:.4f}, that of the click rate {baseline:.4f}")
    if trained + kept != given.rows:
        sys.exit("a row was lost or repeated")
    if loss >= baseline:
        sys.exit("the model is not better than the click rate")


if __name__ == "__main__":
    main()
