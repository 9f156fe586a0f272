"""Batches as torch tensors: the only module here that imports torch.

Tensors are views of the memory that the batch was received in (through DLPack): nothing is copied between the wire
and the loop.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
import torch.distributed
import torch.utils.data

from .arrays import column_of, field_of, is_bfloat16, is_numbers, numbers
from .client import Client, FittedPlan, Remainder, connect
from .plan import Plan
from .prefetch import Prefetch
from .stream import Batch, Stream, StreamInfo

__all__ = ["FlightBatches", "FlightDataset", "TensorBatch"]

STATE_VERSION = 1
ROW_ID = "__row_id"
# CONTRACT: lanes left out are the smallest multiple of world_size that is at least this.
LANES_LEAST = 16
DEFAULT_WINDOW_ROWS = 16384

TensorBatch = dict[str, Any]
"""Column name → tensor ([n] or [n, width]), or `pyarrow.Array` where a column is no plain run of numbers."""

# What state_dict keeps beside the place: all that decides which rows lie where.
ORDER = ("lanes", "remainder", "seed", "shuffle", "window_rows")


class FlightDataset(torch.utils.data.IterableDataset[TensorBatch]):
    """One rank's batches of an epoch as dicts of tensors, read ahead in a background thread.

    Use it as it is or through ``DataLoader(data, batch_size=None)``: batches come made. Call `set_epoch` before each
    epoch, for a new order. ``len(data)`` is the exact number of steps of this rank's whole epoch, also after a resume.

    Rank and world size are those given, else torch.distributed's where that is initialized, else RANK and WORLD_SIZE
    of the environment, else 0 of 1; looked up when they are first needed.

    Columns: FLOAT32, FLOAT16, BFLOAT16, INT32, INT64 and UINT8 outputs are tensors of that dtype; ``__row_id`` is
    int64; an AS_STORED column stays the `pyarrow.Array` that it is (text, dates, lists, anything with nulls).

    With ``DataLoader(num_workers=n)`` worker 0 reads the whole stream and the others nothing, so that no row is lost
    or doubled and the order stays; the prefetch thread makes workers needless. gRPC does not survive a fork: if this
    process has talked to a server before (``len(data)``, ``fit``), give the DataLoader
    ``multiprocessing_context="spawn"``, or an error says so. `state_dict` counts what the loop took, which it can
    only see with ``num_workers=0``.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        dataset: str,
        plan: Plan | FittedPlan | str,
        *,
        batch_size: int = 1024,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "keep",
        with_row_ids: bool = False,
        window_rows: int | None = None,
        lanes: int | None = None,
        prefetch: int = 2,
    ) -> None:
        super().__init__()
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        if prefetch < 1:
            raise ValueError(f"prefetch must be at least 1, not {prefetch}")
        self._url = url
        self._dataset = dataset
        self._plan = plan
        self._batch_size = batch_size
        self._order: dict[str, Any] = {
            "lanes": lanes,
            "remainder": remainder,
            "seed": seed,
            "shuffle": shuffle,
            "window_rows": window_rows,
        }
        self._with_row_ids = with_row_ids
        self._prefetch = prefetch
        self._given_rank = None if rank is None or world_size is None else (rank, world_size)
        self._epoch = epoch
        self._resume: _Place | None = None
        self._place = _Place(epoch, 0)
        self._totals = _Totals()
        # Shared with workers, which set it: their progress cannot be seen here.
        self._in_worker: torch.Tensor = torch.zeros(1, dtype=torch.uint8)
        with contextlib.suppress(RuntimeError):  # No shared memory here: then there can be no workers either.
            self._in_worker.share_memory_()  # pyright: ignore[reportUnknownMemberType]
        self._client: Client | None = None
        self._latest: weakref.ref[FlightBatches] | None = None
        self._lengths: dict[int, StreamInfo] = {}

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; one other than the present begins at its first batch."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._resume = None
            self._place = _Place(epoch, 0)

    def __len__(self) -> int:
        """Return the exact number of steps of this rank in the whole epoch."""
        if self._epoch not in self._lengths:
            self._open(_Place(self._epoch, 0)).close()
        return self._lengths[self._epoch].rank_steps

    def __iter__(self) -> Iterator[TensorBatch]:
        """Start the epoch, or go on where a loaded state left it."""
        worker = torch.utils.data.get_worker_info()
        self._in_worker[0] = int(worker is not None)
        if worker is not None and worker.id != 0:
            return iter(())
        start, self._resume = self._resume or _Place(self._epoch, 0), None
        batches = FlightBatches(self._open(start), self._took, start.epoch, self._prefetch)
        self._place, self._latest = start, weakref.ref(batches)
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the data behind the last batch that the loop took: small, and the same on every rank.

        At an epoch's end the place is the start of the next one.
        """
        if int(self._in_worker[0]) and torch.utils.data.get_worker_info() is None:
            raise RuntimeError(
                "state_dict counts the batches that this process took, and a DataLoader's worker took them; "
                "use num_workers=0 (batches are read ahead in a thread as it is)"
            )
        place = self._place
        _, world_size = self._rank()
        state = {
            "version": STATE_VERSION,
            "epoch": place.epoch,
            "position": place.position,
            "world_size": world_size,
            "snapshot": place.snapshot,
            "plan_id": place.plan_id,
            **self._order,
        }
        if self._order["shuffle"]:
            # Defaults are written out: the same rows must come though the world size is another.
            state["lanes"] = self._order["lanes"] or default_lanes(world_size)
            state["window_rows"] = self._order["window_rows"] or DEFAULT_WINDOW_ROWS
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, at the next iteration, behind the last batch that the saving loop took.

        Seed, shuffling, lanes, window and remainder are taken from the state. Batch size and world size are this
        dataset's own, and may be others where the state's position allows it: an error says where it does not.
        """
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"the state is of version {state.get('version')!r}; this package reads {STATE_VERSION}")
        missing = [name for name in ("epoch", "position", "world_size", *ORDER) if name not in state]
        if missing:
            raise ValueError(f"the state lacks {', '.join(missing)}; was it made by FlightDataset.state_dict?")
        place = _Place(
            int(state["epoch"]),
            int(state["position"]),
            str(state.get("snapshot") or ""),
            str(state.get("plan_id") or ""),
        )
        order = {name: state[name] for name in ORDER}
        check_world(place.position, int(state["world_size"]), self._rank()[1], order)
        self._order = order
        self._epoch = place.epoch
        self._place = self._resume = place
        self._lengths = {}

    def stats(self) -> dict[str, float]:
        """Return what this process's loops took so far: wait_seconds, the time they waited; batches, rows, bytes."""
        totals = self._totals
        return {
            "wait_seconds": totals.wait_seconds,
            "batches": totals.batches,
            "rows": totals.rows,
            "bytes": totals.bytes,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind: a worker opens its own. Keep torch.distributed's rank, which it cannot ask."""
        rank = self._rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else None
        return {**self.__dict__, "_client": None, "_latest": None, "_given_rank": rank or self._given_rank}

    def _rank(self) -> tuple[int, int]:
        """Return this process's rank and the world size."""
        if self._given_rank is not None:
            return self._given_rank
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        rank, world_size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        try:
            return int(rank), int(world_size)
        except ValueError:
            raise ValueError(f"RANK={rank!r} and WORLD_SIZE={world_size!r} must be whole numbers") from None

    def _open(self, place: _Place) -> Stream:
        """Open this rank's stream from a place on."""
        if self._client is None:
            self._client = connect(self._url)
        self._plan = self._client.fitted(self._dataset, self._plan)
        rank, world_size = self._rank()
        stream = self._client.stream(
            self._dataset,
            self._plan,
            **self._order,
            batch_size=self._batch_size,
            rank=rank,
            world_size=world_size,
            epoch=place.epoch,
            start_position=place.position,
            with_row_ids=self._with_row_ids,
            snapshot=place.snapshot or None,
        )
        if place.plan_id and stream.info.plan_id != place.plan_id:
            stream.close()
            raise ValueError(
                f"the state was saved under plan {place.plan_id}; this dataset's plan is {stream.info.plan_id}"
            )
        self._lengths = {place.epoch: stream.info}
        return stream

    def _took(self, batches: FlightBatches, place: _Place, batch: Batch | None) -> None:
        """Count what a loop took; only the latest iterator tells the place."""
        if batch is not None:
            self._totals.batches += 1
            self._totals.rows += batch.header.rows
            self._totals.bytes += batch.data.nbytes
        self._totals.wait_seconds += batches.waited()
        if self._latest is not None and self._latest() is batches:
            self._place = place


class FlightBatches(Iterator[TensorBatch]):
    """Iterator over a `FlightDataset`'s batches; dropping it ends its stream and its thread."""

    def __init__(
        self,
        stream: Stream,
        took: Callable[[FlightBatches, _Place, Batch | None], None],
        epoch: int,
        depth: int,
    ) -> None:
        self._took = took
        self._epoch = epoch
        self._info = stream.info
        self._step_rows = stream.step_rows
        self._batches = Prefetch(stream, depth=depth)
        self._closed = False

    def waited(self) -> float:
        """Return the time that the loop waited since this was last asked."""
        seconds, self._batches.wait_seconds = self._batches.wait_seconds, 0.0
        return seconds

    def __next__(self) -> TensorBatch:
        """Return the next step's tensors."""
        if self._closed:
            raise StopIteration
        try:
            batch = next(self._batches)
        except StopIteration:
            self._took(self, self._next_epoch(), None)
            raise
        self._took(self, self._behind(batch), batch)
        return to_tensors(batch)

    def close(self) -> None:
        """End the stream and the thread now; the place stays where the loop is."""
        self._closed = True
        self._batches.close()

    def _behind(self, batch: Batch) -> _Place:
        """Return the place behind the batch: the next epoch's start where no rank has a step left."""
        position = batch.header.position + self._step_rows
        if position >= self._info.steps * self._step_rows:
            return self._next_epoch()
        return _Place(self._epoch, position, self._info.snapshot, self._info.plan_id)

    def _next_epoch(self) -> _Place:
        return _Place(self._epoch + 1, 0, plan_id=self._info.plan_id)


@dataclass(frozen=True)
class _Place:
    """Where in the data a loop is; the snapshot holds in the middle of an epoch."""

    epoch: int
    position: int
    snapshot: str = ""
    plan_id: str = ""


@dataclass
class _Totals:
    wait_seconds: float = 0.0
    batches: int = 0
    rows: int = 0
    bytes: int = 0


def to_tensors(batch: Batch) -> TensorBatch:
    """Return a batch's columns as tensors over the same memory."""
    tensors: TensorBatch = {}
    for name in batch:
        column, array = field_of(batch.data, name), column_of(batch.data, name)
        tensors[name] = to_tensor(array, column) if is_numbers(column) else array
    return tensors


def to_tensor(array: pa.Array[Any], column: pa.Field[Any]) -> torch.Tensor:
    """Return a column of numbers as a tensor over the same memory."""
    flat, shape = numbers(array)
    tensor = torch.from_dlpack(flat)
    if is_bfloat16(column):
        tensor = tensor.view(torch.bfloat16)
    elif column.name == ROW_ID:
        # Indices of rows are far below 2^63, and torch can do little with uint64.
        tensor = tensor.view(torch.int64)
    return tensor.view(shape)


def default_lanes(world_size: int) -> int:
    """Return the lanes that a server takes when none are named: the least multiple of world_size from 16 on."""
    return -(-LANES_LEAST // world_size) * world_size


def check_world(position: int, saved: int, present: int, order: Mapping[str, Any]) -> None:
    """Raise ValueError unless the place can be gone on from at this world size (DESIGN.md, the order of an epoch)."""
    if position == 0 or saved == present:
        return
    if not order["shuffle"]:
        raise ValueError(
            f"the state was saved at world size {saved} in the middle of an epoch in file order, where each rank has "
            f"a span of its own: go on at world size {saved}, save at the end of an epoch, or use shuffle=True"
        )
    lanes = int(order["lanes"])
    if lanes % present:
        raise ValueError(f"world size {present} does not divide the {lanes} lanes that the state was saved with")
    if position % lanes:
        raise ValueError(
            f"position {position} is no multiple of the {lanes} lanes: it can only be gone on from at world size "
            f"{saved}; make lanes a divisor of batch_size x world_size"
        )
