"""StringIndexerModel and OneHotEncoderModel: `vocab`, `map_id` and `one_hot`."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forebay._plan.chains import cols
from forebay._plan.columns import Columns
from forebay._plan.translation.symbols import Index, OneHotGroup, Scalar, Vector, literal

from .frame import Frame
from .stage import MllibStage

WHOLE = re.compile(r"-?\d+")
FRACTION = re.compile(r"-?(\d+\.\d+(E-?\d+)?|Infinity)|NaN")


def string_indexer(frame: Frame, stage: MllibStage) -> None:
    """Add the index of each column: a vocabulary of the model's labels, in their order, counted from 0."""
    handling = stage.choice("handleInvalid", "error", "skip", "keep")
    pairs, lists = stage.pairs(), stage.items("labelsArray")
    if len(lists) != len(pairs):
        raise stage.refusal(f"has labels for {len(lists)} columns and reads {len(pairs)}")
    for (read, written), labels in zip(pairs, cast("list[object]", lists), strict=True):
        index = _index(frame, stage, read, _checked(stage, read, labels), handling)
        frame.put(written, Scalar(index.columns(), None, pa.int64(), index, null=False, nan=False))


def one_hot_encoder(frame: Frame, stage: MllibStage) -> None:
    """Add a vector per column with a 1 in the element of its index."""
    keep = stage.choice("handleInvalid", "error", "keep") == "keep"
    drop_last = stage.flag("dropLast")
    pairs, sizes = stage.pairs(), stage.items("categorySizes")
    if len(sizes) != len(pairs):
        raise stage.refusal(f"has sizes for {len(sizes)} columns and reads {len(pairs)}")
    for (read, written), size in zip(pairs, cast("list[object]", sizes), strict=True):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise stage.refusal(f"categorySizes of column {read!r} must be a whole number of 1 or more, not {size!r}")
        scalar = frame.scalar(stage, read)
        known = scalar.index or _values_as_index(frame, stage, read, scalar, size, keep=keep)
        codes = {index: min(code, size) for index, code in known.codes.items() if code < size or keep}
        index = Index(known.base, known.base_count, codes, known.source, known.labels[:size])
        width = size + int(keep) - int(drop_last)
        frame.put(written, Vector((_group(index, width, drop_last=drop_last),)))


def _group(index: Index, width: int, *, drop_last: bool) -> OneHotGroup:
    # A value without a code must be an error: the first slot is strict, for all of them.
    slots = tuple(index.slot(category, strict=category == 0 and not index.is_total) for category in range(width))
    return OneHotGroup(slots, None if drop_last else index.columns().one_hot(width))


def _checked(stage: MllibStage, column: str, labels: object) -> list[str]:
    if not isinstance(labels, (list, tuple)) or not all(isinstance(one, str) for one in cast("list[object]", labels)):
        raise stage.refusal(f"labels of column {column!r} must be a list of texts")
    listed = list(cast("list[str]", labels))
    if not listed:
        raise stage.refusal(f"has no labels of column {column!r}: it was fitted to no values; fit it again")
    if len(set(listed)) < len(listed):
        raise stage.refusal(f"labels of column {column!r} are not distinct; save the model again")
    return listed


def _index(frame: Frame, stage: MllibStage, read: str, labels: list[str], handling: str) -> Index:
    scalar = frame.scalar(stage, read)
    if scalar.index is not None:
        return _index_of_index(stage, read, scalar.index, labels, handling)
    source, values = _source(frame, stage, read, scalar, labels)
    codes = {place + 1: place for place in range(len(values))}
    if handling == "keep":
        codes[0] = len(values)
    if handling == "skip":
        column = scalar.sql
        if column is None or scalar.part.ops:
            raise stage.refusal(
                f"drops rows by column {read!r}, which an earlier stage makes; set handleInvalid to keep"
            )
        if source.names[0] != scalar.part.names[0]:
            column = f"CAST({column} AS VARCHAR)"
        frame.add_filter(stage, f"{column} IN ({', '.join(map(literal, values))})")
    base = source.vocab(values=values)  # type: ignore[arg-type]
    return Index(base, len(values) + 1, codes, source, tuple(values))


def _index_of_index(stage: MllibStage, read: str, known: Index, labels: list[str], handling: str) -> Index:
    """Return the index of an earlier index, which Spark reads as texts such as 2.0."""
    try:
        places = {float(label): place for place, label in enumerate(labels)}
    except ValueError:
        raise stage.refusal(f"labels of column {read!r}, an index, are not numbers; save the model again") from None
    if handling == "skip" and any(float(code) not in places for code in known.codes.values()):
        raise stage.refusal(f"drops rows by the index {read!r}; set handleInvalid to keep")
    kept = len(labels) if handling == "keep" else None
    codes = {index: places.get(float(code), kept) for index, code in known.codes.items()}
    return Index(known.base, known.base_count, {index: code for index, code in codes.items() if code is not None})


def _source(
    frame: Frame, stage: MllibStage, read: str, scalar: Scalar, labels: list[str]
) -> tuple[Columns, list[object]]:
    """Return the chain that a vocabulary follows, and the labels as values of its type."""
    if scalar.kind is not None:
        values = _typed(stage, read, scalar.kind, labels)
        if len({0.0 if value == 0 else value for value in values}) < len(values):
            raise stage.refusal(f"labels of column {read!r} are distinct texts of equal numbers, such as 0.0 and -0.0")
        return scalar.part, values
    are_whole = all(WHOLE.fullmatch(label) for label in labels)
    if are_whole or scalar.part.ops:
        # Spark compares texts. The cast works for columns of integers and of text.
        assert scalar.reference is not None, read
        name = frame.derived(f"{read}_text", f"CAST({scalar.reference} AS VARCHAR)")
        if are_whole:
            frame.note(
                f"{stage.uid}: labels of {read!r} are whole numbers as texts, so a derived column casts {read!r} to "
                "text; pass schema= for a vocabulary of the column's own type"
            )
        return cols(name), list(labels)
    if any(FRACTION.fullmatch(label) for label in labels):
        frame.note(
            f"{stage.uid}: labels of {read!r} look like floating-point numbers, and are compared as text; pass "
            "schema= if the column has numbers"
        )
    return scalar.part, list(labels)


def _typed(stage: MllibStage, read: str, kind: pa.DataType, labels: list[str]) -> list[object]:
    """Return labels, which Spark saves as texts, as values of the column's type."""
    if isinstance(kind, pa.DictionaryType):
        kind = cast(pa.DataType, cast(Any, kind).value_type)
    try:
        if pa.types.is_integer(kind):
            return [int(label) for label in labels]
        if pa.types.is_float32(kind):
            return [float(np.float32(label)) for label in labels]
        if pa.types.is_floating(kind):
            return [float(label) for label in labels]
        if pa.types.is_decimal(kind):
            return [Decimal(label) for label in labels]
    except (ValueError, InvalidOperation):
        raise stage.refusal(f"labels of column {read!r} are not of its type {kind}; pass the right schema") from None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return list(labels)
    raise stage.refusal(f"indexes column {read!r} of type {kind}; Spark indexes text and numbers only")


def _values_as_index(frame: Frame, stage: MllibStage, read: str, scalar: Scalar, size: int, *, keep: bool) -> Index:
    """Return the values of a column as the indices that they are."""
    if scalar.kind is None:
        frame.note(f"{stage.uid}: {read!r} must be a column of integers; pass schema= if it has floating-point numbers")
    is_float = scalar.kind is not None and pa.types.is_floating(scalar.kind)
    values: list[object] = [float(value) if is_float else value for value in range(size)]
    codes = {place + 1: place for place in range(size)}
    if keep:
        codes[0] = size
        frame.note(f"{stage.uid}: a null in {read!r} is invalid here, and is an error in Spark")
    base = scalar.part.vocab(values=values)  # type: ignore[arg-type]
    return Index(base, size + 1, codes, scalar.part, tuple(values))
