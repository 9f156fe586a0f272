"""ImputerModel, Bucketizer and VectorAssembler: `fill_null`, `bucketize`, and parts side by side."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa

from forebay._plan.chains import cols
from forebay._plan.columns import Columns
from forebay._plan.translation.symbols import Index, OneHotGroup, Scalar, Vector, literal

from .frame import Frame
from .stage import MllibStage


def imputer(frame: Frame, stage: MllibStage) -> None:
    """Add each column with its nulls and missing values filled."""
    missing = stage.number("missingValue")
    for read, written in stage.pairs():
        value = stage.learned.get(read)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise stage.refusal(f"its value for column {read!r} must be a finite number, not {value!r}; fit it again")
        scalar = frame.scalar(stage, read)
        if scalar.reference is None or scalar.sql is None:
            raise stage.refusal(f"reads column {read!r}, which an earlier stage computes by ops; impute it before")
        frame.put(written, _imputed(frame, stage, read, scalar, missing, float(value)))


def _imputed(frame: Frame, stage: MllibStage, read: str, scalar: Scalar, missing: float, value: float) -> Scalar:
    if scalar.kind is not None and pa.types.is_integer(scalar.kind):
        # Spark casts the value to the column's type.
        value = float(math.trunc(value))
    elif scalar.kind == pa.float32():
        value = float(np.float32(value))
    elif scalar.kind is None and not value.is_integer():
        frame.note(
            f"{stage.uid}: if {read!r} is a column of integers, Spark fills {math.trunc(value)} instead of {value!r}; "
            "pass schema= to fill the same"
        )
    column, inline = scalar.reference, scalar.sql
    if math.isnan(missing):
        source = frame.without_nan(scalar, read)
        is_missing = f"{inline} IS NULL OR isnan(CAST({inline} AS DOUBLE))" if scalar.nan else f"{inline} IS NULL"
    else:
        condition = f"CAST({{}} AS DOUBLE) = {literal(missing)}"
        expr = f"CASE WHEN {condition.format(column)} THEN NULL ELSE {column} END"
        source = Scalar(cols(frame.derived(f"{read}_not_missing", expr)))
        is_missing = f"{inline} IS NULL OR {condition.format(inline)}"
    sql = f"CASE WHEN {is_missing} THEN {literal(value)} ELSE {inline} END"
    still_nan = scalar.nan and not math.isnan(missing)
    return Scalar(source.part.fill_null(value), sql, scalar.kind, null=False, nan=still_nan)


def bucketizer(frame: Frame, stage: MllibStage) -> None:
    """Add the bucket of each column, counted from 0."""
    handling = stage.choice("handleInvalid", "error", "skip", "keep")
    pairs = stage.pairs()
    lists = stage.number_lists("splitsArray") if stage.is_set("splitsArray") else (stage.numbers("splits"),)
    if len(lists) != len(pairs):
        raise stage.refusal(f"has splits for {len(lists)} columns and reads {len(pairs)}")
    for (read, written), splits in zip(pairs, lists, strict=True):
        if len(splits) < 3 or any(math.isnan(split) for split in splits) or any(a >= b for a, b in pairwise(splits)):
            raise stage.refusal(f"splits of column {read!r} must be three or more ascending numbers")
        scalar = frame.scalar(stage, read)
        if handling == "skip":
            _drop_invalid(frame, stage, read, scalar)
        index = _buckets(frame, stage, read, scalar, splits, handling)
        frame.put(written, Scalar(index.columns(), None, pa.int64(), index, null=scalar.null, nan=False))


def _buckets(
    frame: Frame, stage: MllibStage, read: str, scalar: Scalar, splits: tuple[float, ...], handling: str
) -> Index:
    inner = list(splits[1:-1])
    first, last = splits[0], splits[-1]
    bounded_below, bounded_above = math.isfinite(first), math.isfinite(last)
    # Spark's last bucket includes the last split.
    above = [float(np.nextafter(last, math.inf))] if bounded_above else []
    boundaries = [*([first] if bounded_below else []), *inner, *above]
    below = int(bounded_below)
    codes = {bucket + below: bucket for bucket in range(len(splits) - 1)}
    count = len(boundaries) + 1
    if not scalar.nan or handling == "skip":
        return Index(scalar.part.bucketize(boundaries), count, codes)
    if handling == "error" and bounded_above:
        # NaN is above the last split here, which is an error as well.
        return Index(scalar.part.bucketize(boundaries), count, codes)
    if scalar.reference is None:
        raise stage.refusal(f"reads column {read!r}, which an earlier stage computes by ops; bucketize it before")
    base = frame.without_nan(scalar, read).part.bucketize(boundaries)
    if handling == "error":
        return Index(base, count, codes)
    if scalar.null:
        frame.note(f"{stage.uid}: a null in {read!r} is in the bucket of NaN here, and stays null in Spark")
    return Index(base.fill_null(count), count + 1, {**codes, count: len(splits) - 1})


def vector_assembler(frame: Frame, stage: MllibStage) -> None:
    """Add a vector of the columns' values."""
    handling = stage.choice("handleInvalid", "error", "skip", "keep")
    elements: list[Columns | OneHotGroup] = []
    for read in stage.texts("inputCols"):
        symbol = frame.symbol(stage, read)
        if isinstance(symbol, Vector):
            elements += symbol.elements
            continue
        assert isinstance(symbol, Scalar), read
        if handling == "skip":
            _drop_invalid(frame, stage, read, symbol)
        elif handling == "error" and symbol.nan:
            frame.note(f"{stage.uid}: NaN in a column passes here, and is an error in Spark")
        part = frame.element(read, symbol)
        elements.append(part.fill_null(math.nan) if handling == "keep" and symbol.null else part)
    written = stage.text("outputCol")
    frame.put(written, Vector(tuple(elements)))


def _drop_invalid(frame: Frame, stage: MllibStage, read: str, scalar: Scalar) -> None:
    """Drop the rows with a null or NaN."""
    if not scalar.null and not scalar.nan:
        return
    if scalar.sql is None:
        raise stage.refusal(
            f"drops rows by column {read!r}, which an earlier stage computes by ops; set handleInvalid to error"
        )
    checks = [f"{scalar.sql} IS NOT NULL"] if scalar.null else []
    checks += [f"NOT isnan(CAST({scalar.sql} AS DOUBLE))"] if scalar.nan else []
    frame.add_filter(stage, " AND ".join(checks))
