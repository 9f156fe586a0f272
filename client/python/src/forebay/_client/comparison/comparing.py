"""`compare`: a plan's batches and the Parquet files that another job wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from forebay._client.client import Client, connect
from forebay._client.stream import Stream
from forebay._plan.arguments import in_range, whole_number
from forebay._plan.chains import cols
from forebay._plan.fitted import FittedPlan
from forebay._plan.names import suggestion
from forebay._plan.outputs import output
from forebay._plan.plan import Plan
from forebay._plan.plan_digest import plan_digest

from .cells import element_counts
from .pairing import Side, Unpaired, by_key, in_order
from .report import Comparison
from .shards import Location, Shards
from .tally import ColumnTally, Limits

# Elements of one column that are expanded at once: sparse vectors may be wide.
ELEMENTS_MAX = 1 << 22
ULPS_MAX = 2**63 - 1
EXAMPLES_MAX = 1000


class _Names(NamedTuple):
    """Names of the columns to compare and of the key, on both sides."""

    compared: list[tuple[str, str]]
    key: list[tuple[str, str]]
    only_in_plan: tuple[str, ...]
    only_in_shards: tuple[str, ...]


def compare(
    plan: Plan | FittedPlan | str,
    shards: Location | Sequence[Location],
    *,
    url: Client | str | Sequence[str],
    dataset: str | None = None,
    by: str | Sequence[str] | None = None,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    ulps: int = 0,
    atol: float = 0.0,
    batch_size: int = 4096,
    examples: int = 5,
) -> Comparison:
    """Compare the batches of a plan with Parquet files, and report for each column which rows differ.

    `shards` is a Parquet file, a folder of them, a URI, or a list of these. `url` is a server's, or a `Client`;
    `dataset` may be omitted if the server has only one. Rows are paired in order (the dataset's file order, and the
    order of the shards' paths), or by the values of the key columns `by`. `columns` limits the comparison to these
    outputs, or maps outputs to other names in the shards. Floats are accepted if they are within `ulps` units in the
    last place, or differ by at most `atol`. `examples` is the number of differing rows to keep per column.

    Memory is bounded: in order, a batch of each side; by key, a partition of each side, divided in temporary files. The
    book's page "Leaving Spark" has the exact rules.
    """
    limits = Limits(whole_number("ulps", ulps, most=ULPS_MAX), in_range("atol", atol, 0.0))
    examples = whole_number("examples", examples, most=EXAMPLES_MAX)
    stored = Shards(shards)
    keys = _listed("by", by)
    _check_stored(stored.schema, [*keys, *(columns.values() if isinstance(columns, Mapping) else ())])
    client = url if isinstance(url, Client) else connect(url)
    try:
        name = _dataset(client, dataset)
        chosen = _with_keys(client.fitted(name, plan), keys)
        with client.stream(name, chosen, batch_size=batch_size) as stream:
            names = _names(stream.schema, stored.schema, keys, columns)
            return _compared(stream, stored, names, limits, examples=examples, batch_size=batch_size)
    finally:
        if client is not url:
            client.close()


def _compared(
    stream: Stream, stored: Shards, names: _Names, limits: Limits, *, examples: int, batch_size: int
) -> Comparison:
    ours, theirs = cast(Any, stream.schema), cast(Any, stored.schema)
    tallies = [
        ColumnTally(one, ours.field(one), theirs.field(other), limits, examples) for one, other in names.compared
    ]
    wanted = list(dict.fromkeys([*(pair[1] for pair in names.compared), *(pair[1] for pair in names.key)]))
    plan_batches = (batch.data for batch in stream)
    shard_batches = stored.batches(wanted, batch_size)
    unpaired, rows = Unpaired(), 0
    if names.key:
        sides = Side(plan_batches, stream.info.rows), Side(shard_batches, stored.rows())
        pairs = by_key(*sides, names.key, unpaired)
    else:
        pairs = in_order(plan_batches, shard_batches, unpaired)
    for pair in pairs:
        rows += len(pair.rows)
        keys = [cast(Any, pair.plan).column(one) for one, _ in names.key]
        for tally, (one, other) in zip(tallies, names.compared, strict=True):
            left, right = cast(Any, pair.plan).column(one), cast(Any, pair.shards).column(other)
            for start, count in _slices(left, right):
                tally.add(
                    left.slice(start, count),
                    right.slice(start, count),
                    pair.rows[start : start + count],
                    [key.slice(start, count) for key in keys],
                )
    return Comparison(
        tuple(tally.result() for tally in tallies),
        tuple(one for one, _ in names.key),
        rows,
        unpaired.plan.rows,
        unpaired.shards.rows,
        tuple(unpaired.plan.keys),
        tuple(unpaired.shards.keys),
        unpaired.repeated,
        names.only_in_plan,
        names.only_in_shards,
    )


def _slices(left: Any, right: Any) -> Iterator[tuple[int, int]]:
    """Yield starts and counts of rows whose vectors have up to `ELEMENTS_MAX` elements together."""
    counts = np.maximum(element_counts(left), element_counts(right))
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + ELEMENTS_MAX, side="right")))
        yield start, end - start
        start = end


def _dataset(client: Client, name: str | None) -> str:
    if name is not None:
        return name
    known = list(client.datasets())
    if len(known) != 1:
        raise ValueError(f"dataset: the server has {len(known)}, pass one of {', '.join(known) or 'none'}")
    return known[0]


def _listed(name: str, value: str | Sequence[str] | None) -> list[str]:
    listed = [] if value is None else [value] if isinstance(value, str) else list(value)
    if value is not None and (not listed or not all(isinstance(cast(object, one), str) for one in listed)):
        raise TypeError(f"{name} must be the name of a column or a list of names, not {value!r}")
    return listed


def _with_keys(plan: Plan | FittedPlan | str, by: list[str]) -> Plan | FittedPlan | str:
    """Return the plan with the key columns among its outputs."""
    if not by:
        return plan
    if isinstance(plan, str):
        raise ValueError("by: the id of a plan does not say which columns it has; pass the FittedPlan")
    inner = plan.plan if isinstance(plan, FittedPlan) else plan
    missing = {name: output(cols(name).as_stored()) for name in by if name not in inner.outputs}
    if not missing:
        return plan
    keys = cast("list[object]", Plan(outputs=missing).to_dict()["outputs"])
    fields = inner.to_dict()
    wider = Plan.from_dict({**fields, "outputs": [*cast("list[object]", fields["outputs"]), *keys]})
    if isinstance(plan, Plan):
        return wider
    return replace(plan, plan_id=plan_digest(wider.to_dict()), plan=wider)


def _check_stored(schema: pa.Schema, names: list[str]) -> None:
    for name in names:
        if name not in schema.names:
            raise ValueError(f"the shards have no column {name!r}: {suggestion(name, schema.names)}")


def _names(
    plan: pa.Schema, shards: pa.Schema, by: list[str], columns: Sequence[str] | Mapping[str, str] | None
) -> _Names:
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names: columns=[{columns!r}]")
    ours, theirs = list(plan.names), list(shards.names)
    mapped = dict(columns) if isinstance(columns, Mapping) else {}
    chosen = ours if columns is None else list(columns)
    for name in chosen:
        if name not in ours:
            raise ValueError(f"columns: the plan has no output {name!r}: {suggestion(name, ours)}")
    pairs = [(name, mapped.get(name, name)) for name in chosen if name not in by]
    compared = [pair for pair in pairs if pair[1] in theirs]
    known = {*by, *(pair[1] for pair in compared)}
    return _Names(
        compared,
        [(name, name) for name in by],
        tuple(one for one, other in pairs if other not in theirs),
        tuple(name for name in theirs if name not in known) if columns is None else (),
    )
