"""Train on flights, then serve single flights by the same plan: the features are those of the training, to the bit.

A request is one row, sent over an open DoExchange by the id of the plan that the training streamed. The program
compares the features of every answer with those of the same row in the stream, fails if one bit differs, and prints the
latency of a request, without and with the model.

    .venv/bin/python client/python/examples/serving_rows.py

Requires forebay-server (see `forebay.local`).
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from flights_data import LATE_MINUTES, convert_once

import forebay as fb
from forebay.torch import FlightDataset

DATASET = "flights"
FEATURES = ("dense", "carrier")
# What a request has. The delay of arrival is not known yet: the plan's filter and label read it, so that any number
# stands for it, and the label of the answer is not used.
COLUMNS = ["dep_delay", "distance", "hour", "carrier"]
UNKNOWN = {"arr_delay": [0.0]}
PLAN = fb.Plan(
    filter="arr_delay IS NOT NULL",
    derive={"late": f"arr_delay > {LATE_MINUTES}"},
    outputs={
        "dense": fb.cols("dep_delay", "distance", "hour").fill_null("mean").standardize().clip(-3, 3),
        "carrier": fb.cols("carrier").vocab(),
        "late": fb.cols("late"),
    },
)
EPOCHS = 2
SEED = 7


class Late(torch.nn.Module):
    """An embedding of the carrier, the numbers, and two layers to a logit."""

    def __init__(self, carriers: int) -> None:
        """Initialize for a number of carriers, including that of unknown ones."""
        super().__init__()
        self.carriers = torch.nn.Embedding(carriers, 4)
        self.layers = torch.nn.Sequential(torch.nn.Linear(3 + 4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, carrier: torch.Tensor) -> torch.Tensor:
        """Return a logit for each row."""
        return self.layers(torch.cat([dense, self.carriers(carrier)], dim=1)).squeeze(1)


def train(url: str, fitted: fb.FittedPlan) -> Late:
    """Train on the stream."""
    torch.manual_seed(SEED)
    model = Late(fitted.cardinalities["carrier"]["carrier"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = FlightDataset(url, DATASET, fitted, batch_size=4096, shuffle=True, seed=SEED)
    for epoch, batches in data.epochs(EPOCHS):
        losses: list[float] = []
        for batch in batches:
            logits = model(batch["dense"], batch["carrier"])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["late"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: mean loss {np.mean(losses):.4f}")
    return model.eval()


@dataclass
class Served:
    """The answers to requests, and how long they took."""

    features: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    probabilities: list[float] = field(default_factory=list[float])
    exchange_seconds: list[float] = field(default_factory=list[float])
    whole_seconds: list[float] = field(default_factory=list[float])


def serve(client: fb.Client, fitted: fb.FittedPlan, model: Late, requests: Sequence[dict[str, Any]]) -> Served:
    """Compute the features and the prediction of each request, one after the other."""
    served = Served()
    stored = client.schema(DATASET)
    schema = pa.schema([stored.field(name) for name in [*COLUMNS, *UNKNOWN]])
    with client.exchange(fitted.plan_id, schema=schema) as exchange:
        for request in requests:
            began = time.perf_counter()
            features = exchange(request)
            exchanged = time.perf_counter()
            served.probabilities.append(predicted(model, features))
            served.whole_seconds.append(time.perf_counter() - began)
            served.exchange_seconds.append(exchanged - began)
            served.features.append({name: np.array(features[name]) for name in FEATURES})
    return served


def predicted(model: Late, features: Any) -> float:
    """Return the model's probability for one row."""
    with torch.inference_mode():
        logit = model(*(torch.from_numpy(np.array(features[name])) for name in FEATURES))
        return float(torch.sigmoid(logit).item())


def compare(served: Served, streamed: Sequence[dict[str, Any]], model: Late) -> int:
    """Compare the answers with the rows of the stream, to the bit; return the number of values that were compared."""
    values = 0
    for row, (ours, theirs) in enumerate(zip(served.features, streamed, strict=True)):
        for name in FEATURES:
            one, other = ours[name], theirs[name]
            if (one.dtype, one.shape, one.tobytes()) != (other.dtype, other.shape, other.tobytes()):
                sys.exit(f"request {row}: {name} is {one} and was {other} in the stream")
            values += one.size
        if served.probabilities[row] != predicted(model, theirs):
            sys.exit(f"request {row}: the model's answer is another one than for the row of the stream")
    return values


def quantiles(name: str, seconds: Sequence[float]) -> str:
    """Format latencies in microseconds."""
    at = np.quantile(np.array(seconds) * 1e6, [0.5, 0.9, 0.99])
    return f"{name:<28}" + "".join(f"{one:>10,.0f}" for one in at)


def main() -> None:
    """Train, serve and compare."""
    parser = argparse.ArgumentParser(description="Train a model, then serve single rows by the plan of its training.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    parser.add_argument("--requests", type=int, default=2000, help="rows to serve (default: %(default)s)")
    given = parser.parse_args()
    url = fb.local(flights=convert_once(given.data / DATASET).parent)
    # A request is too small for several threads.
    torch.set_num_threads(1)

    with fb.connect(url) as client:
        fitted = client.fit(DATASET, PLAN)
        model = train(url, fitted)
        with client.stream(DATASET, fitted, batch_size=given.requests, with_row_ids=True) as stream:
            batch = next(stream)
            rows = np.array(batch["__row_id"])
            streamed = [{name: np.array(batch[name][row : row + 1]) for name in FEATURES} for row in range(len(rows))]
        stored = client.table(DATASET, columns=COLUMNS).read().take(rows)
        requests = [{name: [value] for name, value in row.items()} | UNKNOWN for row in stored.to_pylist()]
        served = serve(client, fitted, model, requests)

    values = compare(served, streamed, model)
    print(f"plan {fitted.plan_id}")
    print(f"{len(requests):,} requests of one row: {values:,} features, equal to the stream's to the bit\n")
    print(f"{'latency, µs':<28}" + "".join(f"{name:>10}" for name in ("median", "90 %", "99 %")))
    print(quantiles("features (DoExchange)", served.exchange_seconds))
    print(quantiles("features and the model", served.whole_seconds))


if __name__ == "__main__":
    main()
