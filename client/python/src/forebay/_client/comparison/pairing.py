"""Pairs the rows of two streams of batches: in order, or by key.

By key, both streams are divided by a hash of the key into partitions of about `PARTITION_BYTES`, in temporary files
unless one partition suffices. Memory is that of one partition of each side; a partition is larger only if it has a key
that occurs very often, or if a side exceeds `PARTITIONS_MAX` partitions.
"""

from __future__ import annotations

import contextlib
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from forebay._plan.arguments import UINT64_MAX

PARTITION_BYTES = 32 << 20
# Each is an open file while a side is divided; the usual limit of a process is 1,024.
PARTITIONS_MAX = 512
# Rows of a partition that are compared at once.
PAIR_ROWS = 1 << 14
KEYS_SHOWN = 5
# No column of a dataset has this name.
ROW = "\0row"
# 2^64 divided by the golden ratio, odd: its product spreads consecutive keys.
MIX = np.uint64(0x9E3779B97F4A7C15)
# Every decimal and integer of a key.
DECIMAL: Any = pa.decimal256(76, 38)

Rows = npt.NDArray[np.int64]
Batches = Iterator[pa.RecordBatch]


class Pair(NamedTuple):
    """Rows of both sides that belong together, and their numbers in the plan's stream."""

    plan: pa.RecordBatch
    shards: pa.RecordBatch
    rows: Rows


@dataclass
class Rest:
    """Rows of one side without a counterpart: how many, and the first keys."""

    rows: int = 0
    keys: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])


@dataclass
class Unpaired:
    """Rows without a counterpart, counted while pairs are read."""

    plan: Rest = field(default_factory=Rest)
    shards: Rest = field(default_factory=Rest)
    repeated: int = 0
    """Keys that occur more than once on a side."""


class Side(NamedTuple):
    """One side: its batches, and how many rows they have."""

    batches: Batches
    rows: int


def in_order(plan: Batches, shards: Batches, unpaired: Unpaired) -> Iterator[Pair]:
    """Yield pairs of rows by their place in both streams."""
    left, right = _RowBuffer(plan), _RowBuffer(shards)
    at = 0
    while (count := min(left.count(), right.count())) > 0:
        yield Pair(left.take(count), right.take(count), np.arange(at, at + count))
        at += count
    unpaired.plan.rows, unpaired.shards.rows = left.drain(), right.drain()


class _RowBuffer:
    """A batch of a stream, taken row by row."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    def count(self) -> int:
        """Return the number of rows available, 0 at the end."""
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return 0
        return self._batch.num_rows

    def take(self, count: int) -> pa.RecordBatch:
        """Return the next rows; there are that many."""
        assert self._batch is not None, count
        taken, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        return taken

    def drain(self) -> int:
        """Read the stream to its end; return the number of rows."""
        total = 0
        while (count := self.count()) > 0:
            total += count
            self._batch = None
        return total


def by_key(plan: Side, shards: Side, names: Sequence[tuple[str, str]], unpaired: Unpaired) -> Iterator[Pair]:
    """Yield pairs of rows with equal keys; `names` are the key's columns on both sides.

    The k-th row of a key is paired with the k-th row of that key on the other side. Nulls equal each other.
    """
    sides = [_begun(plan), _begun(shards)]
    if all(side.first is not None for side in sides):
        _check_keys(sides[0].first.schema, sides[1].first.schema, names)
    count = min(PARTITIONS_MAX, -(-max(1, *(side.bytes for side in sides)) // PARTITION_BYTES))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-"))) if count > 1 else None
        divided = [
            _divided(side.batches, [pair[at] for pair in names], count, folder, at) for at, side in enumerate(sides)
        ]
        for number in range(count):
            left, right = (one.read(number) for one in divided)
            yield from _joined(left, right, names, unpaired)


class _Begun(NamedTuple):
    """A side whose first batch is known, from which its size follows."""

    first: Any
    batches: Batches
    bytes: int


def _begun(side: Side) -> _Begun:
    first: Any = next(side.batches, None)
    if first is None:
        return _Begun(None, iter(()), 0)
    return _Begun(first, _chain(first, side.batches), side.rows * first.nbytes // first.num_rows)


def _chain(first: pa.RecordBatch, rest: Batches) -> Batches:
    yield first
    yield from rest


def _joined(left: Any, right: Any, names: Sequence[tuple[str, str]], unpaired: Unpaired) -> Iterator[Pair]:
    """Yield the pairs of one partition, and count its other rows."""
    keys = [name for name, _ in names], [name for _, name in names]
    if left is None or right is None:
        _note_rest(unpaired.plan, left, keys[0], np.zeros(0, np.int64))
        _note_rest(unpaired.shards, right, keys[1], np.zeros(0, np.int64))
        return
    identities, repeated = _identities(left, right, names)
    unpaired.repeated += repeated
    _, places, others = cast("tuple[Rows, Rows, Rows]", np.intersect1d(*identities, True, True))
    _note_rest(unpaired.plan, left, keys[0], places)
    _note_rest(unpaired.shards, right, keys[1], others)
    order = np.argsort(places, kind="stable")
    places, others = places[order], others[order]
    rows = np.asarray(left.column(ROW))[places]
    left, right = left.drop_columns(ROW), right.drop_columns(ROW)
    for start in range(0, len(rows), PAIR_ROWS):
        chosen = slice(start, start + PAIR_ROWS)
        yield Pair(_taken(left, places[chosen]), _taken(right, others[chosen]), rows[chosen])


def _taken(table: Any, places: Rows) -> pa.RecordBatch:
    batches = table.take(pa.array(places)).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _note_rest(rest: Rest, table: Any, names: list[str], paired: Rows) -> None:
    """Count the rows of a side that have no counterpart."""
    if table is None or len(paired) == table.num_rows:
        return
    places: Rows = np.setdiff1d(np.arange(int(table.num_rows)), paired)
    rest.rows += len(places)
    room = max(0, KEYS_SHOWN - len(rest.keys))
    shown: list[dict[str, object]] = table.select(names).take(cast(Any, pa).array(places[:room])).to_pylist()
    rest.keys += [tuple(row.values()) for row in shown]


def _identities(left: Any, right: Any, names: Sequence[tuple[str, str]]) -> tuple[tuple[Rows, Rows], int]:
    """Return a number per row that is unique on its side and equal for rows that belong together."""
    codes = np.zeros(left.num_rows + right.num_rows, np.int64)
    for one, other in names:
        columns: list[Any] = [_canonical(left.column(one)), _canonical(right.column(other))]
        if columns[0].type != columns[1].type:
            # int64, uint64 and decimals have no common integer type.
            columns = [column.cast(DECIMAL) for column in columns]
        encoded: Any = pa.concat_arrays(columns).dictionary_encode()
        values = np.asarray(encoded.indices.fill_null(-1), np.int64) + 1
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + values, return_inverse=True)[1].astype(np.int64)
    sides = codes[: left.num_rows], codes[left.num_rows :]
    occurrences = [_occurrences(side) for side in sides]
    most = 1 + max(int(one.max(initial=0)) for one in occurrences)
    repeated = set[int]().union(*(np.unique(s[o > 0]).tolist() for s, o in zip(sides, occurrences, strict=True)))
    return (sides[0] * most + occurrences[0], sides[1] * most + occurrences[1]), len(repeated)


def _occurrences(codes: Rows) -> Rows:
    """Return for each row how many rows before it have the same code."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(codes) else np.zeros(0, int)
    lengths = np.diff(np.concatenate([starts, [len(codes)]]))
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return found


class _InMemory:
    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def read(self, number: int) -> Any:
        """Return the only partition."""
        assert number == 0, number
        return cast(Any, pa).Table.from_batches(self._batches) if self._batches else None


class _InFiles:
    def __init__(self, paths: list[Path | None]) -> None:
        self._paths = paths

    def read(self, number: int) -> Any:
        """Read a partition."""
        path = self._paths[number]
        if path is None:
            return None
        with cast(Any, ipc).open_stream(str(path)) as reader:
            return reader.read_all()


def _divided(batches: Batches, keys: list[str], count: int, folder: Path | None, at: int) -> _InMemory | _InFiles:
    """Read a side to its end, and divide it by its keys."""
    numbered = _numbered(batches)
    if folder is None:
        return _InMemory(list(numbered))
    paths: list[Path | None] = [None] * count
    with contextlib.ExitStack() as stack:
        writers: dict[int, Any] = {}
        for batch in numbered:
            places = _partitions(batch, keys, count)
            for number in np.unique(places).tolist():
                if number not in writers:
                    path = paths[number] = folder / f"{at}-{number}.arrows"
                    writers[number] = stack.enter_context(cast(Any, ipc).new_stream(str(path), batch.schema))
                writers[number].write_batch(cast(Any, batch).filter(places == number))
    return _InFiles(paths)


def _numbered(batches: Batches) -> Batches:
    """Yield the batches with the number of each row."""
    at = 0
    for batch in batches:
        count = batch.num_rows
        yield cast(Any, batch).append_column(ROW, pa.array(np.arange(at, at + count)))
        at += count


def _partitions(batch: pa.RecordBatch, keys: list[str], count: int) -> Rows:
    """Return each row's partition, the same for equal keys of both sides."""
    hashes = np.zeros(batch.num_rows, np.uint64)
    for name in keys:
        column: Any = _canonical(cast(Any, batch).column(name))
        if pa.types.is_integer(column.type):
            numbers = np.asarray(column.cast(pa.uint64(), safe=False).fill_null(0))
            hashes = hashes * np.uint64(31) + (numbers * MIX >> np.uint64(32))
            continue
        encoded = column.dictionary_encode()
        known = np.array([*map(_hash, encoded.dictionary.to_pylist()), 0], np.uint64)
        # The hash of null is the last one.
        indices = np.asarray(encoded.indices.fill_null(len(known) - 1), np.int64)
        hashes = hashes * np.uint64(31) + known[indices]
    return (hashes % np.uint64(count)).astype(np.int64)


def _hash(value: object) -> int:
    """Return the hash of a key that is not an integer; a decimal's is that of an equal integer."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return (int(value) * int(MIX) & UINT64_MAX) >> 32
    return 0 if value is None else zlib.crc32(repr(value).encode())


def _check_keys(plan: pa.Schema, shards: pa.Schema, names: Sequence[tuple[str, str]]) -> None:
    for one, other in names:
        kinds = [cast(Any, schema).field(name).type for schema, name in ((plan, one), (shards, other))]
        left, right = (_key_kind(kind) for kind in kinds)
        # Writers without unsigned integers, such as Spark, store them as decimals of whole numbers.
        is_whole = {left, right} == {"integer", "decimal"} and all(getattr(kind, "scale", 0) == 0 for kind in kinds)
        if left is None or (left != right and not is_whole):
            raise ValueError(
                f"by: key {one!r} is {kinds[0]} in the plan and {kinds[1]} in the shards; keys are integers, texts, "
                "booleans, dates, timestamps or decimals, of the same kind on both sides"
            )


def _key_kind(kind: Any) -> str | None:
    if pa.types.is_dictionary(kind):
        return _key_kind(kind.value_type)
    checks = {
        "integer": pa.types.is_integer,
        "boolean": pa.types.is_boolean,
        "date": pa.types.is_date,
        "timestamp": pa.types.is_timestamp,
        "decimal": pa.types.is_decimal,
    }
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    return next((name for name, check in checks.items() if check(kind)), None)


def _canonical(column: Any) -> pa.Array[Any]:
    """Return a key's values in the type that both sides have."""
    if isinstance(column, pa.ChunkedArray):
        column = cast(Any, column).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = _key_kind(column.type)
    if kind == "integer":
        return column if column.type == pa.uint64() else column.cast(pa.int64())
    if kind == "text":
        return column.cast(pa.large_string())
    if kind == "date":
        return column.cast(pa.date32())
    if kind == "timestamp":
        return column.cast(pa.timestamp("ns", tz="UTC")).cast(pa.int64())
    if kind == "decimal":
        return cast(Any, pc).cast(column, DECIMAL)
    return column
