"""Distributed training that is killed in mid-epoch and resumes with another number of processes.

Two processes train a network with DistributedDataParallel (gloo, on the CPU) and are killed by SIGKILL within a step.
The run then resumes from its last checkpoint three times: with two, with one and with four processes. A global batch
has the same size for all of them, and a shuffled step has the same rows at every world size that divides its lanes, so
the averaged gradients are the same up to the order of additions. Asserted of every step:

- its rows, of all processes together, are those of the uninterrupted run;
- with two processes, its loss and the final weights equal those of the uninterrupted run to the bit;
- with one and with four, its loss is within `TOLERANCE` of it.

Requires forebay-server (see `forebay.local`).
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from flights_data import LATE_MINUTES, TRAINING, convert_once
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import forebay as fb
from forebay.torch import FlightDataset

DATASET = "flights"
PLAN = fb.Plan(
    filter=f"{TRAINING} AND month <= 2",
    derive={"late": f"arr_delay > {LATE_MINUTES}"},
    outputs={
        "features": [
            fb.cols("dep_delay", "distance", "hour").fill_null("mean").standardize().clip(-3, 3),
            fb.cols("origin").vocab().one_hot(),
        ],
        "late": fb.cols("late"),
    },
)
WIDTH = 3 + 4  # EWR, JFK, LGA, and unseen values

EPOCHS = 2
STEP_ROWS = 1024
LANES = 16  # Each of the world sizes divides it, and it divides STEP_ROWS.
CHECKPOINT_STEPS = 10
KILLED_STEP = 25
# One rounding is 2^-24 ≈ 6e-8, and roundings add up over the steps. One wrong row of 1024 changes a loss by about 1e-4.
TOLERANCE = 1e-5
RUN_SECONDS_MAX = 240.0  # A run takes seconds; processes that wait for a dead one are ended.


@dataclass(frozen=True)
class Job:
    """A run of training: where it reads, and the folder of its checkpoint and its records."""

    url: str
    plan: fb.FittedPlan
    folder: Path
    killed_step: int | None = None

    @property
    def checkpoint(self) -> Path:
        """The state to resume from."""
        return self.folder / "checkpoint.pt"

    def records(self) -> dict[int, tuple[str, float]]:
        """Return the digest of the rows, and the loss, of each step; steps that ran again replace the earlier ones."""
        lines = map(json.loads, (self.folder / "steps.jsonl").read_text().splitlines())
        return {line["step"]: (line["rows"], line["loss"]) for line in lines}

    def weights(self) -> bytes:
        """Return the final weights."""
        return (self.folder / "weights.bin").read_bytes()


def train(rank: int, world_size: int, rendezvous: Path, job: Job) -> None:
    """Train as one of the processes, from the checkpoint if there is one."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # The rank and the world size are those of torch.distributed.
    data = FlightDataset(
        job.url,
        DATASET,
        job.plan,
        batch_size=STEP_ROWS // world_size,
        shuffle=True,
        seed=7,
        lanes=LANES,
        remainder="drop",
        with_row_ids=True,
    )
    step = 0
    if job.checkpoint.exists():
        saved = torch.load(job.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        data.load_state_dict(saved["data"])
        step = saved["step"]

    for _, batches in data.epochs(EPOCHS):
        for batch in batches:
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch["features"]).squeeze(1), batch["late"])
            optimizer.zero_grad()
            loss.backward()  # Averages the gradients of all processes.
            if step == job.killed_step:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            record(job, step, batch["__row_id"], loss.detach())
            step += 1
            if step % CHECKPOINT_STEPS == 0 and rank == 0:
                save(job, model=model.state_dict(), optimizer=optimizer.state_dict(), data=data.state_dict(), step=step)
    if rank == 0:
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        (job.folder / "weights.bin").write_bytes(weights.numpy().tobytes())
    torch.distributed.destroy_process_group()


def record(job: Job, step: int, row_ids: torch.Tensor, loss: torch.Tensor) -> None:
    """Append a step's rows and loss, over all processes, to the records; the first process does so."""
    world_size = torch.distributed.get_world_size()
    everywhere = [torch.empty_like(row_ids) for _ in range(world_size)]
    torch.distributed.all_gather(everywhere, row_ids)
    torch.distributed.all_reduce(loss)
    if torch.distributed.get_rank() == 0:
        rows = torch.cat(everywhere).sort().values
        digest = hashlib.sha256(rows.numpy().tobytes()).hexdigest()
        with (job.folder / "steps.jsonl").open("a") as records:
            records.write(json.dumps({"step": step, "rows": digest, "loss": loss.item() / world_size}) + "\n")


def save(job: Job, **state: Any) -> None:
    """Replace the checkpoint; a kill leaves the old one or the new one."""
    half_written = job.checkpoint.with_suffix(".partial")
    torch.save(state, half_written)
    os.replace(half_written, job.checkpoint)


def run(job: Job, world_size: int) -> list[int | None]:
    """Train in `world_size` processes; return their exit codes, negative for a signal."""
    # A server process that has imported torch forks them.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "forebay.torch"])
    with tempfile.TemporaryDirectory() as meeting:
        rendezvous = Path(meeting) / "rendezvous"
        ranks = [context.Process(target=train, args=(rank, world_size, rendezvous, job)) for rank in range(world_size)]
        try:
            for process in ranks:
                process.start()
            deadline = time.monotonic() + RUN_SECONDS_MAX
            for process in ranks:
                process.join(max(0.0, deadline - time.monotonic()))
            return [process.exitcode for process in ranks]
        finally:
            for process in ranks:
                process.kill()


def check(is_true: bool, message: str) -> None:
    """Exit with the message unless `is_true`."""
    if not is_true:
        sys.exit(message)


def resumed(killed: Job, whole: Job, world_size: int, folder: Path) -> str:
    """Resume the killed run with `world_size` processes; return a line of the table, or exit if a step differs."""
    shutil.copytree(killed.folder, folder)
    job = Job(killed.url, killed.plan, folder)
    check(run(job, world_size) == [0] * world_size, f"resuming with {world_size} processes failed")
    ours, theirs = job.records(), whole.records()
    check(ours.keys() == theirs.keys(), f"{len(ours)} steps instead of {len(theirs)}")
    for step, (rows, loss) in ours.items():
        expected_rows, expected = theirs[step]
        check(rows == expected_rows, f"step {step}: other rows than in the uninterrupted run")
        check(abs(loss - expected) <= TOLERANCE, f"step {step}: loss {loss}, and {expected} without the kill")
    largest = max(abs(loss - theirs[step][1]) for step, (_, loss) in ours.items())
    equal = job.weights() == whole.weights()
    check(world_size != 2 or (largest == 0 and equal), "two processes: the losses or the weights differ")
    losses = "equal to the bit" if largest == 0 else f"within {largest:.0e}"
    weights = "equal to the bit" if equal else "other roundings"
    return f"{world_size:>9} {STEP_ROWS // world_size:>10} {'all equal':>10} {losses:>17}   {weights}"


def main() -> None:
    """Train without and with a kill, and compare."""
    parser = argparse.ArgumentParser(description="Kill distributed training, and resume it at other world sizes.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    url = fb.local(flights=convert_once(parser.parse_args().data / DATASET).parent)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

    with fb.connect(url) as client:
        plan = client.fit(DATASET, PLAN)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        whole, killed = (Job(url, plan, folder / name, at) for name, at in (("whole", None), ("killed", KILLED_STEP)))
        whole.folder.mkdir()
        killed.folder.mkdir()
        check(run(whole, 2) == [0, 0], "the uninterrupted run failed")
        losses = [loss for _, loss in whole.records().values()]
        print(
            f"uninterrupted: 2 processes, {EPOCHS} epochs, {len(losses)} steps of {STEP_ROWS} rows, "
            f"loss {losses[0]:.4f} to {losses[-1]:.4f}"
        )
        check(run(killed, 2) == [-signal.SIGKILL] * 2, "the processes were not killed")
        check(max(killed.records()) == KILLED_STEP - 1 < len(losses) // EPOCHS, "not killed in mid-epoch")
        saved = torch.load(killed.checkpoint)["step"]
        print(f"killed: both processes, by SIGKILL within step {KILLED_STEP}; the checkpoint is after {saved} steps")
        print(f"{'resumed':>9} {'batch rows':>10} {'step rows':>10} {'losses':>17}   final weights")
        for world_size in (2, 1, 4):
            print(resumed(killed, whole, world_size, folder / str(world_size)))


if __name__ == "__main__":
    main()
