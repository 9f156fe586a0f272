"""The expected stream of every spec: read once from a server without faults, and computed independently where possible.

Stored as digests of the batches, with which every process of the soak compares what it receives.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
from xxhash import xxh3_64

import forebay as fb
import specs
from forebay._client.explain import Explain
from forebay._client.header import BatchHeader
from specs import SPECS, Json, StreamSpec
from tables import FLOATS, SMALL_ROWS, TABLE_ROWS, TEXT_REPEATS, TEXT_ROWS, WEB_ROWS, columns, web_columns

ROW_ID = "__row_id"
FIT_VARIANTS = 6
EXCHANGE_ROWS, EXCHANGES = 256, 8
REPLAYS = 6


class Untrue(Exception):
    """The fault-free read is wrong."""


@dataclass(frozen=True)
class Step:
    """One batch."""

    header: BatchHeader
    digest: int


@dataclass(frozen=True)
class Share:
    """A rank's stream of one epoch."""

    steps: list[Step]
    row_ids: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Truth:
    """Expected results of all calls."""

    shares: dict[tuple[str, int, int], Share]
    """By spec, epoch and rank."""
    plans: dict[str, Json]
    """By spec: its plan, fitted if needed, and the plan id."""
    fits: list[tuple[Json, str]]
    """Unfitted plans and the ids of the fitted ones."""
    explains: dict[str, Explain]
    small: pa.Table
    """The raw table of that name."""
    exchanges: list[tuple[pa.RecordBatch, int]]
    """Rows and the digest of their features."""

    def plan(self, spec: StreamSpec) -> fb.Plan | fb.FittedPlan:
        """Return the plan that a client streams, fitted if needed."""
        kept = self.plans[spec.name]
        plan = fb.Plan.from_dict(kept["plan"])
        return fb.FittedPlan(kept["plan_id"], plan) if kept["plan_id"] else plan

    def row_ids(self, spec: StreamSpec) -> np.ndarray[Any, Any]:
        """Return the rows that an epoch of the spec has, ascending."""
        ranks = [self.shares[spec.name, spec.epochs[0], rank].row_ids for rank in range(spec.world_size)]
        return np.sort(np.concatenate(ranks))

    def save(self, path: Path) -> None:
        """Write this to a file for the other processes."""
        path.write_bytes(pickle.dumps(self))

    @staticmethod
    def load(path: Path) -> Truth:
        """Read a file written by `save` in the same run."""
        return pickle.loads(path.read_bytes())


def digest(batch: pa.RecordBatch) -> int:
    """Return a hash of every buffer of the batch, including dictionaries and validity."""
    seen = xxh3_64()
    for column in batch.columns:
        storage = column.storage if isinstance(column, pa.ExtensionArray) else column
        for buffer in storage.buffers():
            # A missing buffer differs from an empty one.
            seen.update(b"\1" if buffer is None else memoryview(buffer))
    return seen.intdigest()


def row_ids(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """Return the batch's rows by their index in the snapshot, copied."""
    return batch.column(batch.schema.get_field_index(ROW_ID)).to_numpy().copy()


def learn(url: str) -> Truth:
    """Read all specs from one server, check what can be computed, and record everything else."""
    shares: dict[tuple[str, int, int], Share] = {}
    plans: dict[str, Json] = {}
    explains: dict[str, Explain] = {}
    with fb.connect(url) as client:
        for spec in SPECS:
            plan: fb.Plan | fb.FittedPlan = fb.Plan.from_dict(spec.plan)
            if spec.with_fit:
                plan = client.fit(spec.dataset, plan, progress=False)
            if isinstance(plan, fb.FittedPlan):
                plans[spec.name] = {"plan_id": plan.plan_id, "plan": plan.plan.to_dict()}
            else:
                plans[spec.name] = {"plan_id": "", "plan": plan.to_dict()}
            for epoch in spec.epochs:
                ranks = [_read(client, spec, plan, epoch, rank) for rank in range(spec.world_size)]
                _check_rows(spec, ranks)
                shares |= {(spec.name, epoch, rank): share for rank, share in enumerate(ranks)}
            if spec.dataset in ("table", "texts"):
                explains[spec.name] = client.explain(spec.dataset, plan, **spec.options)
        fits = [(each, client.fit("table", fb.Plan.from_dict(each), progress=False).plan_id) for each in _fits()]
        small = client.table("small").read()
        known = plans[specs.SHUFFLED.name]
        exchanges = _exchanges(client, fb.FittedPlan(known["plan_id"], fb.Plan.from_dict(known["plan"])))
    if not small.equals(columns(0, SMALL_ROWS)):
        raise Untrue("the raw table differs from what was written")
    return Truth(shares, plans, fits, explains, small, exchanges)


def _read(client: fb.Client, spec: StreamSpec, plan: fb.Plan | fb.FittedPlan, epoch: int, rank: int) -> Share:
    steps, ids = list[Step](), list[np.ndarray[Any, Any]]()
    with client.stream(spec.dataset, plan, rank=rank, epoch=epoch, **spec.options) as stream:
        for batch in stream:
            steps.append(Step(batch.header, digest(batch.data)))
            ids.append(row_ids(batch.data))
            _check_values(spec, batch.data, ids[-1])
    return Share(steps, np.concatenate(ids))


def _check_rows(spec: StreamSpec, ranks: list[Share]) -> None:
    """Check the epoch's rows against those that pass the filter."""
    every = {"table": TABLE_ROWS, "texts": TEXT_ROWS, "web": WEB_ROWS, "damaged": 15_000}[spec.dataset]
    want = np.arange(every)
    if spec.plan is specs.FILTERED:
        want = want[(want * 31) % 1009 % 3 != 1]
    if not np.array_equal(np.sort(np.concatenate([share.row_ids for share in ranks])), want):
        raise Untrue(f"{spec.name}: the epoch does not have each row that passes exactly once")


def _check_values(spec: StreamSpec, batch: pa.RecordBatch, ids: np.ndarray[Any, Any]) -> None:
    """Check the outputs that need no fit against values computed from the row indices."""
    if not np.array_equal(batch["id"].to_numpy(), ids.astype(np.int64)):
        raise Untrue(f"{spec.name}: ids do not match the rows")
    if spec.plan is specs.NUMBERS:
        rows = web_columns().take(pa.array(ids))  # pyright: ignore[reportArgumentType]
        want = np.stack([rows[name].to_numpy() for name in "abcd"], axis=1).astype(np.float32)
        if not np.array_equal(batch["m"].to_numpy_ndarray(), want):  # pyright: ignore[reportAttributeAccessIssue]
            raise Untrue(f"{spec.name}: numbers do not match the rows")
    if spec.plan is specs.PLAIN:
        rows = columns(0, 15_000).take(pa.array(ids))  # pyright: ignore[reportArgumentType]
        want = np.stack([rows[name].to_numpy() for name in FLOATS], axis=1)
        if not np.array_equal(batch["m"].to_numpy_ndarray(), want):  # pyright: ignore[reportAttributeAccessIssue]
            raise Untrue(f"{spec.name}: numbers do not match the rows")
    if spec.plan is specs.TEXTS and batch["text"].to_pylist() != [f"{row % 4} " * TEXT_REPEATS for row in ids]:
        raise Untrue(f"{spec.name}: texts do not match the rows")


def _fits() -> list[Json]:
    """Return plans that learn from different rows."""
    return [{**specs.FEATURES, "filter": f"n % {FIT_VARIANTS} <> {number}"} for number in range(FIT_VARIANTS)]


def _exchanges(client: fb.Client, plan: fb.FittedPlan) -> list[tuple[pa.RecordBatch, int]]:
    rows = columns(1000, EXCHANGE_ROWS * EXCHANGES).combine_chunks().to_batches()[0]
    found: list[tuple[pa.RecordBatch, int]] = []
    with client.exchange(plan) as exchange:
        for number in range(EXCHANGES):
            part = rows.slice(number * EXCHANGE_ROWS, EXCHANGE_ROWS)
            # Copied, so that the part is not written as a slice of a larger batch.
            copies = [pa.concat_arrays([column]) for column in part.columns]
            part = pa.RecordBatch.from_arrays(copies, schema=part.schema)
            answer = exchange.batch(part)
            if not np.array_equal(answer["id"].to_numpy(), part["id"].to_numpy()):
                raise Untrue("the ids of an exchange differ from those sent")
            found.append((part, digest(answer)))
    return found


def ticket(client: fl.FlightClient, request: Json, rank: int = 0) -> fl.Ticket:
    """Request a flight and return the rank's ticket."""
    command = json.dumps(request).encode()
    return client.get_flight_info(fl.FlightDescriptor.for_command(command)).endpoints[rank].ticket
