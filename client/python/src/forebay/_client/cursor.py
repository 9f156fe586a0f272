"""Cursors: a position in the data, small enough for any checkpoint, and the rules for resuming from it.

One global position covers all ranks because the request and the position determine a batch. Makes no calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from forebay.errors import CursorRefused, OrderChanged

from .balance import normalized_balance, normalized_sample_weight
from .buckets import normalized_buckets
from .header import BatchHeader, StreamInfo
from .options import REMAINDERS, WINDOW_ROWS, Order, Remainder, StreamOptions, default_lanes
from .resume import check_resume, check_same_steps
from .window import normalized_window

__all__ = ["CURSOR_VERSION", "Cursor", "EpochCursors", "Order", "Remainder", "resolved"]

CURSOR_VERSION = 2

# The fields of an order that say which rows an epoch has, besides a sample.
OF_ROWS = ("balance", "sample_weight", "window", "bucket_by_length")


@dataclass(frozen=True)
class Cursor:
    """The position after the last batch read; the same on every rank.

    `to_json` returns at most 300 bytes, 370 in a sample, and those of `balance`, `sample_weight`, `window` and
    `bucket_by_length`.
    `position` is global and counts the rows of all ranks. At position 0, the start of an epoch, there is no snapshot: a
    new epoch reads the files that are current then.
    """

    epoch: int
    position: int
    world_size: int
    order: Order = field(default_factory=Order)
    snapshot: str = ""
    """Digest of the epoch's files."""
    plan_id: str = ""
    order_version: int = 0
    """Version of the order's arithmetic; 0 if unknown."""
    batch_size: int = 0
    """Rows per batch and rank, on which the steps of `bucket_by_length` depend; 0 without it, or if unknown."""

    def to_dict(self) -> dict[str, Any]:
        """Return the cursor as plain values, for JSON and pickle."""
        return {
            "version": CURSOR_VERSION,
            "order_version": self.order_version,
            "epoch": self.epoch,
            "position": self.position,
            "world_size": self.world_size,
            "snapshot": self.snapshot,
            "plan_id": self.plan_id,
            **({"batch_size": self.batch_size} if self.batch_size else {}),
            **_written(self.order),
        }

    def options(self, given: StreamOptions) -> StreamOptions:
        """Return the options with the cursor's epoch, order and snapshot instead of those given."""
        order = resolved(self.order, self.world_size, order_version=self.order_version)
        return replace(given, **asdict(order), epoch=self.epoch, snapshot=self.snapshot or None)

    def to_json(self) -> str:
        """Return the cursor as one line of JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def of(cls, state: Cursor | Mapping[str, Any] | str) -> Cursor:
        """Read the result of `to_dict` or `to_json`; raise `CursorRefused` for anything else."""
        if isinstance(state, Cursor):
            return state
        if isinstance(state, str):
            try:
                state = cast("Mapping[str, Any]", json.loads(state))
            except ValueError as error:
                raise CursorRefused(f"the state is not JSON: {error}") from error
        if not isinstance(cast(object, state), Mapping):
            raise CursorRefused(
                f"the state is not a mapping but {state!r}; pass the result of state_dict or of a cursor"
            )
        return _read(state)

    def check(self, *, world_size: int, batch_size: int = 0) -> None:
        """Raise `CursorRefused` unless this world size can resume here; any batch size can, except of buckets.

        0 is an unknown batch size.
        """
        if self.order.bucket_by_length:
            known = min(self.batch_size, batch_size) > 0
            saved = (self.world_size, self.batch_size if known else 0)
            check_same_steps(self.position, saved=saved, present=(world_size, batch_size if known else 0))
            return
        lanes = self.order.lanes or default_lanes(self.world_size, self.order_version)
        check_resume(
            self.position,
            saved=self.world_size,
            lanes=lanes if self.order.shuffle else None,
            world_size=world_size,
        )

    def check_rows(self, given: Order) -> None:
        """Raise `CursorRefused` unless the cursor's position counts rows of this sample and window, drawn alike."""
        saved = self.order
        for name in OF_ROWS:
            found, wanted = getattr(saved, name), getattr(given, name)
            if found != wanted:
                raise CursorRefused(
                    f"the state was saved in an epoch with {name} {found}, this stream's is {wanted}: resume with the "
                    f"saved {name}, or restart the epoch"
                )
        if (saved.sample, saved.sample_seed) != (given.sample, given.sample_seed):
            raise CursorRefused(
                f"the state was saved in an epoch of the sample {saved.sample} with seed {saved.sample_seed}, this "
                f"stream's is {given.sample} with seed {given.sample_seed}: resume with the saved sample, or restart "
                "the epoch"
            )

    def check_plan(self, plan_id: str) -> None:
        """Raise `CursorRefused` if the plan differs from the cursor's; an empty id is unknown."""
        if self.plan_id and plan_id and plan_id != self.plan_id:
            raise CursorRefused(
                f"the state was saved under plan {self.plan_id}; this plan is {plan_id}: resume with the saved plan, "
                "or restart the epoch"
            )

    def check_info(self, info: StreamInfo) -> None:
        """Raise `CursorRefused` unless this is the plan, and the order of rows, that the cursor was made under."""
        self.check_plan(info.plan_id)
        if self.order_version and info.order_version != self.order_version:
            raise OrderChanged(
                f"the state was saved under version {self.order_version} of the order, and the server uses "
                f"{info.order_version}: resume on a server that supports it, or restart the epoch"
            )


@dataclass(frozen=True)
class EpochCursors:
    """Cursors of one stream, one after each of its batches."""

    start: Cursor
    info: StreamInfo
    order: Order
    step_rows: int
    """Rows of a step, all ranks together."""

    def __call__(self, header: BatchHeader | None) -> Cursor:
        """Return the cursor after a batch: after None or the epoch's last step, the start of the next epoch."""
        start, info = self.start, self.info
        order = resolved(self.order, start.world_size, info=info)
        at = replace(start, order=order, plan_id=info.plan_id, order_version=info.order_version, batch_size=0)
        if order.bucket_by_length:
            at = replace(at, batch_size=self.step_rows // start.world_size)
        if header is None or self._ends(header):
            return replace(at, epoch=start.epoch + 1, position=0, snapshot="")
        return replace(at, position=header.position + self.step_rows, snapshot=info.snapshot)

    def some_rank_ends(self, header: BatchHeader) -> bool:
        """Whether a rank has no batch after this step. All ranks return the same."""
        if self.order.bucket_by_length:
            return self._ends(header) or self._steps_until(header) >= self.info.common_steps
        shortest = self.info.rows // self.start.world_size
        return self._ends(header) or self._rank_rows(header) >= shortest

    def steps_left(self, header: BatchHeader) -> int:
        """Return the steps of the longest rank after a batch."""
        if self.order.bucket_by_length:
            return max(0, self.info.steps - self._steps_until(header))
        return max(0, -(-(self.info.rows - header.position - self.step_rows) // self.step_rows))

    def _ends(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to the epoch's last step. All ranks return the same."""
        if self.order.remainder != "keep":
            # All ranks have the same number of steps.
            return header.last
        if self.order.bucket_by_length:
            return self._steps_until(header) >= self.info.steps
        longest = -(-self.info.rows // self.start.world_size)
        return self._rank_rows(header) >= longest

    def _steps_until(self, header: BatchHeader) -> int:
        """Return the steps of the epoch up to the batch's, which all have as many positions."""
        return header.position // self.step_rows + 1

    def _rank_rows(self, header: BatchHeader) -> int:
        """Return the rows of each rank up to the end of the batch's step."""
        return (header.position + self.step_rows) // self.start.world_size


def resolved(order: Order, world_size: int, *, order_version: int = 0, info: StreamInfo | None = None) -> Order:
    """Return the order with its defaults filled in, so that another world size reads the same rows.

    The server's values win over the package's defaults, which depend on the version of the order.
    """
    if not order.shuffle:
        return order
    version = info.order_version if info else order_version
    lanes = (info.lanes if info else 0) or order.lanes or default_lanes(world_size, version)
    window_rows = (info.window_rows if info else 0) or order.window_rows or WINDOW_ROWS
    return replace(order, lanes=lanes, window_rows=window_rows)


def _written(order: Order) -> dict[str, Any]:
    """Return the order as plain values, without a sample of every row and fields of `OF_ROWS` that are unset."""
    fields = asdict(order)
    for name in OF_ROWS:
        if fields[name] is None:
            del fields[name]
    if order.sample == 1:
        del fields["sample"]
    if order.sample_seed == 0:
        del fields["sample_seed"]
    return fields


def _read(state: Mapping[str, Any]) -> Cursor:
    if state.get("version") != CURSOR_VERSION:
        raise CursorRefused(
            f"the state has version {state.get('version')!r}, this package reads version {CURSOR_VERSION}: load it "
            "with the release of forebay that saved it, or restart the epoch"
        )
    names = ("epoch", "position", "world_size", "order_version", "lanes", "remainder", "seed", "shuffle", "window_rows")
    missing = [name for name in names if name not in state]
    if missing:
        raise CursorRefused(f"the state lacks {', '.join(missing)}; pass the result of state_dict or of a cursor")
    if state["remainder"] not in REMAINDERS:
        raise CursorRefused(f"the state's remainder is {state['remainder']!r}: expected keep, drop or pad")
    try:
        order = Order(
            lanes=None if state["lanes"] is None else int(state["lanes"]),
            remainder=state["remainder"],
            seed=int(state["seed"]),
            shuffle=bool(state["shuffle"]),
            window_rows=None if state["window_rows"] is None else int(state["window_rows"]),
            sample=float(state.get("sample", 1.0)),
            sample_seed=int(state.get("sample_seed", 0)),
            balance=normalized_balance(state.get("balance")),
            sample_weight=normalized_sample_weight(state.get("sample_weight")),
            window=normalized_window(state.get("window")),
            bucket_by_length=normalized_buckets(state.get("bucket_by_length")),
        )
        return Cursor(
            epoch=int(state["epoch"]),
            position=int(state["position"]),
            world_size=int(state["world_size"]),
            order=order,
            snapshot=str(state.get("snapshot") or ""),
            plan_id=str(state.get("plan_id") or ""),
            order_version=int(state["order_version"]),
            batch_size=int(state.get("batch_size") or 0),
        )
    except (TypeError, ValueError) as error:
        raise CursorRefused(f"the state has an invalid number: {error}") from error
