"""A small model that steps train, on the GPU or, as a rehearsal, on the CPU."""

from __future__ import annotations

import torch

import forebay as fb
from harness.benches import criteo

DIMENSIONS = 16
RATE = 0.01
PLAN = fb.Plan(
    outputs={
        "dense": fb.cols(*criteo.DENSE).fill_null(0).log1p().standardize().clip(-3, 3),
        "cats": fb.cols(*criteo.STRINGS).hash_bucket(criteo.HASH_BUCKETS),
        "hashed": fb.cols(*criteo.INTEGERS).hash_bucket(criteo.HASH_BUCKETS),
    }
)

Tensors = dict[str, torch.Tensor]


class Trainer:
    """A model of embeddings and dense layers."""

    def __init__(self, device: str, width: int) -> None:
        torch.manual_seed(7)
        inputs = len(criteo.DENSE) + 2 * DIMENSIONS
        self.device = device
        self.embeddings = torch.nn.EmbeddingBag(criteo.HASH_BUCKETS, DIMENSIONS, device=device)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, width, device=device),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width, device=device),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 1, device=device),
        )
        # Plain gradient descent by hand: torch.optim takes seconds to import.
        self.parameters = [*self.embeddings.parameters(), *self.layers.parameters()]

    def step(self, batch: Tensors) -> None:
        """Run a training step without waiting for the device."""
        vectors = [self.embeddings(batch[name]) for name in ("cats", "hashed")]
        loss = self.layers(torch.cat([batch["dense"], *vectors], dim=1)).square().mean()
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=RATE)

    def wait(self) -> None:
        """Wait until the device is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()
