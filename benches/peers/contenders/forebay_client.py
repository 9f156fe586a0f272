"""Forebay with its Python package: FlightDataset's dicts of tensors from a server on the same cores, over TCP.

The plan is fitted beforehand by another server; the measured one receives the fitted plan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from protocol import Batch, Data, Job, serve

from forebay import FittedPlan, Plan, connect
from forebay.torch import FlightDataset
from harness.benches import criteo
from harness.benches.bench_server import DATASET, Server

SMALL = "small"


class ForebayClient:
    """FlightDataset, in file order or shuffled, over TCP or through a ring."""

    def __init__(self, job: Job, *, shuffle: bool, ring: bool = False) -> None:
        self._job, self._shuffle = job, shuffle
        self._plan = fitted_plan(job)
        socket = Path(job.scratch, "s")
        self._server = start(job, *(["--listen", f"unix:{socket}"] if ring else []))
        self._url = f"grpc+unix://{socket}" if ring else self._server.url
        self._transport = "ring" if ring else "native"

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield the tensors unchanged."""
        dataset = FlightDataset(
            self._url,
            DATASET if data == self._job.whole else SMALL,
            self._plan,
            batch_size=self._job.batch_size,
            shuffle=self._shuffle,
            seed=self._job.seed,
            epoch=number,
            rank=0,
            world_size=1,
        )
        for batch in dataset:
            yield batch["dense"], batch["cats"]
        if (transport := dataset.stats()["transport"]) != self._transport:
            raise RuntimeError(f"the batches came by {transport}, not {self._transport}")

    def close(self) -> None:
        """Stop the server."""
        self._server.stop()


def start(job: Job, *more: str) -> Server:
    """Start a server of both datasets with one thread per core."""
    flags = ["--dataset", f"{SMALL}={job.small.folder}", "--cpu-threads", str(job.cores), *more]
    return Server(Path(job.server), Path(job.whole.folder), *flags)


def fitted_plan(job: Job) -> FittedPlan:
    """Return the plan fitted to all rows; it is fitted in the first visit only."""
    kept = Path(job.scratch).parent / "forebay-plan.json"
    if not kept.exists():
        server = start(job)
        with connect(server.url) as client:
            text = client.fit(DATASET, Plan.from_dict(criteo.plan()), progress=False).to_json()
        server.stop()
        unfinished = kept.with_suffix(".unfinished")
        unfinished.write_text(text)
        os.replace(unfinished, kept)
    return FittedPlan.from_json(kept)


if __name__ == "__main__":
    serve(lambda job: ForebayClient(job, shuffle=False), "pyarrow", "forebay")
