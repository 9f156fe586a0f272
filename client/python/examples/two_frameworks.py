"""One model in PyTorch and in TensorFlow, trained from the same stream: the same batches, and the same losses.

Both frameworks start from the same weights and read the same shuffled epochs. Each batch is compared to the bit, and
the losses of every step within `TOLERANCE`: the frameworks add up products in different orders, and float32 has 24
binary digits.

Requires forebay-server (see `forebay.local`) and TensorFlow; `make test-tensorflow` installs it.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

# Before TensorFlow: both include LLVM, and the process aborts if torch's is loaded second.
import torch._dynamo  # pyright: ignore[reportUnusedImport]

# isort: split
# Untyped, as TensorFlow is not installed where types are checked.
import tensorflow  # pyright: ignore
from flights_data import LATE_MINUTES, TRAINING, convert_once

import forebay as fb
import forebay.tensorflow
from forebay.torch import FlightDataset

tf = cast(Any, tensorflow)

DATASET = "flights"
PLAN = fb.Plan(
    filter=TRAINING,
    derive={"late": f"arr_delay > {LATE_MINUTES}"},
    outputs={
        "dense": fb.cols("dep_delay", "distance", "hour").fill_null("mean").standardize().clip(-3, 3),
        "carrier": fb.cols("carrier").vocab(),
        "late": fb.cols("late"),
    },
)
OPTIONS: dict[str, Any] = {"batch_size": 2048, "shuffle": True, "seed": 7, "remainder": "drop"}

EPOCHS = 2
HIDDEN = 32
EMBEDDING = 4
LEARNING_RATE = 0.1
# One rounding is 2^-24 ≈ 6e-8, and roundings add up over the steps. One wrong row of 2048 changes a loss by about 1e-4.
TOLERANCE = 1e-5

Array = np.ndarray[Any, Any]


@dataclass
class Run:
    """The losses of a framework's steps, and a digest of each of its batches."""

    losses: list[float] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)

    def note(self, columns: dict[str, Array], loss: float) -> None:
        """Record a step."""
        digest = hashlib.sha256()
        for name, values in sorted(columns.items()):
            digest.update(f"{name} {values.dtype} {values.shape}".encode())
            digest.update(values.tobytes())
        self.digests.append(digest.hexdigest())
        self.losses.append(loss)


def initial_weights(carriers: int) -> dict[str, Array]:
    """Return the weights that both models start from."""
    random = np.random.default_rng(7)
    width = 3 + EMBEDDING
    return {
        "embedding": random.normal(0, 0.1, (carriers, EMBEDDING)).astype(np.float32),
        "hidden": random.normal(0, width**-0.5, (width, HIDDEN)).astype(np.float32),
        "bias": np.zeros(HIDDEN, np.float32),
        "output": random.normal(0, HIDDEN**-0.5, (HIDDEN, 1)).astype(np.float32),
    }


def in_torch(url: str, plan: fb.FittedPlan, weights: dict[str, Array]) -> Run:
    """Train in PyTorch."""
    table, hidden, bias, output = (torch.from_numpy(w.copy()).requires_grad_() for w in weights.values())
    optimizer = torch.optim.SGD([table, hidden, bias, output], LEARNING_RATE)
    data, run = FlightDataset(url, DATASET, plan, **OPTIONS), Run()
    for _, batches in data.epochs(EPOCHS):
        for batch in batches:
            rows = torch.cat([batch["dense"], table[batch["carrier"].long()]], dim=1)
            logits = (torch.relu(rows @ hidden + bias) @ output).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["late"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.note({name: column.numpy() for name, column in batch.items()}, loss.item())
    return run


def in_tensorflow(url: str, plan: fb.FittedPlan, weights: dict[str, Array]) -> Run:
    """Train in TensorFlow."""
    table, hidden, bias, output = variables = [tf.Variable(w) for w in weights.values()]
    data, run = forebay.tensorflow.dataset(url, DATASET, plan, **OPTIONS), Run()

    # Traced once: the shapes are static.
    @tf.function(input_signature=[data.element_spec])
    def step(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            rows = tf.concat([batch["dense"], tf.gather(table, batch["carrier"])], axis=1)
            logits = tf.squeeze(tf.nn.relu(rows @ hidden + bias) @ output, axis=1)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=batch["late"], logits=logits)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(LEARNING_RATE * tf.convert_to_tensor(gradient))
        return loss

    for _, batches in data.epochs(EPOCHS):
        for batch in batches:
            loss = step(batch)
            run.note({name: column.numpy() for name, column in batch.items()}, float(loss))
    return run


def differences(ours: Run, theirs: Run) -> Iterator[float]:
    """Yield the difference of each step's losses; exit if batches differ in a bit, or losses beyond `TOLERANCE`."""
    if len(ours.losses) != len(theirs.losses):
        sys.exit(f"{len(ours.losses)} steps in PyTorch, {len(theirs.losses)} in TensorFlow")
    for step, (one, other) in enumerate(zip(ours.losses, theirs.losses, strict=True)):
        if ours.digests[step] != theirs.digests[step]:
            sys.exit(f"step {step}: the batches differ")
        if abs(one - other) > TOLERANCE:
            sys.exit(f"step {step}: losses {one} and {other} differ by more than {TOLERANCE}")
        yield abs(one - other)


def main() -> None:
    """Train in both frameworks, and compare."""
    parser = argparse.ArgumentParser(description="Train one model in PyTorch and TensorFlow from one stream.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    url = fb.local(flights=convert_once(parser.parse_args().data / DATASET).parent)

    with fb.connect(url) as client:
        fitted = client.fit(DATASET, PLAN)
    weights = initial_weights(fitted.cardinalities["carrier"]["carrier"])
    ours, theirs = in_torch(url, fitted, weights), in_tensorflow(url, fitted, weights)
    largest = max(differences(ours, theirs))
    print(f"{'step':>6} {'PyTorch':>12} {'TensorFlow':>12}")
    for step in (0, 1, 10, 100, len(ours.losses) - 1):
        print(f"{step:>6} {ours.losses[step]:>12.8f} {theirs.losses[step]:>12.8f}")
    print(f"{len(ours.digests)} batches of {OPTIONS['batch_size']} rows, equal to the bit")
    print(f"losses differ by at most {largest:.0e}, {TOLERANCE:.0e} is allowed")


if __name__ == "__main__":
    main()
