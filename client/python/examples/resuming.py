"""Training runs in processes that are killed and resumed, and their records. Shared by examples."""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from forebay.torch import FlightDataset

T = TypeVar("T")

# A server process that has imported torch forks the processes.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["torch", "forebay.torch"])

Batch = dict[str, torch.Tensor]
Records = dict[int, tuple[str, float]]
"""The digest of the data, and the loss, of each step."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of training: its length, and the folder of its checkpoint and records."""

    folder: Path
    epochs: int
    checkpoint_steps: int = 10
    killed_step: int | None = None

    @property
    def checkpoint(self) -> Path:
        """The state to resume from."""
        return self.folder / "checkpoint.pt"

    @property
    def weights(self) -> Path:
        """The final weights."""
        return self.folder / "weights.pt"

    @property
    def steps(self) -> Path:
        """The records of the steps."""
        return self.folder / "steps.jsonl"

    def records(self) -> Records:
        """Return what the run recorded; steps that ran again replace earlier ones."""
        lines = map(json.loads, self.steps.read_text().splitlines())
        return {line["step"]: (line["data"], line["loss"]) for line in lines}

    def saved_steps(self) -> int:
        """Return the number of steps before the checkpoint."""
        return torch.load(self.checkpoint)["step"]


def train_steps(
    run: Run,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: FlightDataset,
    loss_of: Callable[[Batch], torch.Tensor],
    recorded: str,
) -> None:
    """Train from the checkpoint, if there is one, to the last epoch; records digests of the output `recorded`."""
    step = 0
    if run.checkpoint.exists():
        saved = torch.load(run.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        data.load_state_dict(saved["data"])
        step = saved["step"]
    run.folder.mkdir(exist_ok=True)
    with run.steps.open("a", buffering=1) as steps:
        for _, batches in data.epochs(run.epochs):
            for batch in batches:
                loss = loss_of(batch)
                optimizer.zero_grad()
                loss.backward()
                if step == run.killed_step:
                    os.kill(os.getpid(), signal.SIGKILL)
                optimizer.step()
                digest = hashlib.sha256(batch[recorded].numpy().tobytes()).hexdigest()
                steps.write(json.dumps({"step": step, "data": digest, "loss": loss.item()}) + "\n")
                step += 1
                if step % run.checkpoint_steps == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    save(run.checkpoint, {**state, "data": data.state_dict(), "step": step})
    save(run.weights, model.state_dict())


def save(path: Path, state: dict[str, object]) -> None:
    """Replace a file; a kill leaves the old one or the new one."""
    half_written = path.with_suffix(".partial")
    torch.save(state, half_written)
    half_written.replace(path)


def in_process(train: Callable[[T], None], job: T) -> int | None:
    """Train in a process; return its exit code, negative for a signal."""
    process = PROCESSES.Process(target=train, args=(job,))
    process.start()
    process.join()
    return process.exitcode


def check(is_true: bool, message: str) -> None:
    """Exit with the message unless `is_true`."""
    if not is_true:
        sys.exit(message)


def check_equal(resumed: Run, uninterrupted: Run) -> int:
    """Exit unless both runs have the same data, losses and final weights, to the bit; return the number of steps."""
    found, expected = resumed.records(), uninterrupted.records()
    check(found.keys() == expected.keys(), f"{len(found)} steps instead of {len(expected)}")
    other = [step for step, values in found.items() if values != expected[step]]
    check(not other, f"steps {other} have other data or losses than in the uninterrupted run")
    pairs = zip(torch.load(uninterrupted.weights).values(), torch.load(resumed.weights).values(), strict=True)
    check(all(torch.equal(one, another) for one, another in pairs), "the final weights differ")
    return len(found)
