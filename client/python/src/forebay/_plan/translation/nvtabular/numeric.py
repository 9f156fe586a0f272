"""Normalize, NormalizeMinMax, LogOp, FillMissing, FillMedian, Clip and Bucketize."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa

from forebay._plan.columns import Columns
from forebay._plan.translation.derivations import Derivations, makes_nan
from forebay._plan.translation.symbols import Scalar

from .node import WorkflowNode, plain_number
from .pickled import Record

Table = dict[str, Scalar]
"""Columns by name."""

# The function that Bucketize makes of a list or a dictionary.
OWN_FUNCTION = "Bucketize.__init__.<locals>.<lambda>"


def normalize(state: Derivations, node: WorkflowNode, given: Table) -> Table:
    """Return (x - mean) / std."""
    _check_type(node)

    def scaled(part: Columns, column: str) -> Columns:
        std = node.learned("stds", column)
        return part.standardize(mean=node.learned("means", column), std=std if std > 0 else 1.0)

    return _computed(state, node, given, scaled)


def normalize_min_max(state: Derivations, node: WorkflowNode, given: Table) -> Table:
    """Return (x - min) / (max - min)."""
    _check_type(node)

    def scaled(part: Columns, column: str) -> Columns:
        least, most = node.learned("mins", column), node.learned("maxs", column)
        if most < least:
            raise node.refusal(f"the bounds of column {column!r} are {least} and {most}; fit the workflow again")
        if most > least:
            return part.standardize(mean=least, std=most - least)
        state.note(f"{node.uid}: {column!r} was constant: 0.5 for every value here, NaN for 0 in NVTabular")
        return part.clip(0.5, 0.5)

    return _computed(state, node, given, scaled)


def log_op(state: Derivations, node: WorkflowNode, given: Table) -> Table:
    """Return ln(1 + x)."""
    state.note(f"{node.uid}: ln(1 + x) in double precision here; NVTabular adds 1 in float32, so small values differ")
    made = _computed(state, node, given, lambda part, _: part.log1p())
    return {name: replace(scalar, nan=True) for name, scalar in made.items()}


def fill_missing(state: Derivations, node: WorkflowNode, given: Table) -> Table:
    """Return columns with their missing values filled with a constant."""
    fill = node.fields.get("fill_val")
    number = plain_number(fill)
    if number is None and not isinstance(fill, str):
        raise node.refusal(f"fill_val must be a number or text, not {fill!r}")
    return _filled(state, node, given, lambda _: fill if isinstance(fill, str) else cast(float, number))


def fill_median(state: Derivations, node: WorkflowNode, given: Table) -> Table:
    """Return columns with their missing values filled with the median."""
    return _filled(state, node, given, lambda column: node.learned("medians", column))


def _filled(state: Derivations, node: WorkflowNode, given: Table, fill: Callable[[str], float | str]) -> Table:
    if node.fields.get("add_binary_cols"):
        raise node.refusal("add_binary_cols adds columns that no op makes; derive x IS NULL instead")
    made: Table = {}
    for name in node.inputs:
        scalar, value = given[name], fill(name)
        if not scalar.null and not scalar.nan:
            made[name] = scalar
            continue
        if isinstance(value, str):
            made[name] = replace(scalar, part=scalar.part.fill_null(text=value), sql=None, null=False, nan=False)
            continue
        made_by = makes_nan(scalar) if scalar.nan else None
        if made_by is not None:
            raise node.refusal(f"fills column {name!r} after {made_by}, which may make NaN; fill before it")
        source = state.missing_as_null(scalar)
        kind = source.kind
        if kind is not None and pa.types.is_integer(kind) and not float(value).is_integer():
            kind = pa.float64()
        made[name] = replace(source, part=source.part.fill_null(value), sql=None, kind=kind, null=False)
    return made


def clip(state: Derivations, node: WorkflowNode, given: Table) -> Table:
    """Return values limited to the bounds."""
    low, high = (node.fields.get(name) for name in ("min_value", "max_value"))
    least = None if low is None else node.number("min_value", low)
    most = None if high is None else node.number("max_value", high)
    return _computed(state, node, given, lambda part, _: part.clip(least, most))


def bucketize(state: Derivations, node: WorkflowNode, given: Table) -> Table:
    """Return the number of boundaries at or below each value."""
    made: Table = {}
    for name in node.inputs:
        edges = _boundaries(node, name)
        scalar = given[name]
        _note_singles(state, scalar, name)
        # A null is NaN in pandas, which is in the last bucket.
        part = scalar.part.fill_null(math.nan) if scalar.null else scalar.part
        made[name] = Scalar(part.bucketize(edges), None, pa.int64(), null=False, nan=False)
    return made


def _boundaries(node: WorkflowNode, column: str) -> list[float]:
    """Return the boundaries of a column."""
    held = _held(node.fields.get("boundaries"))
    if held is None:
        raise node.refusal("boundaries are a function, which is not run; refit with a list or a dictionary of lists")
    listed = cast("dict[str, object]", held).get(column) if isinstance(held, dict) else held
    if not isinstance(listed, (list, tuple)) or not listed:
        raise node.refusal(f"has no boundaries of column {column!r}")
    edges = [node.number(f"a boundary of column {column!r}", one) for one in cast("list[Any]", listed)]
    if any(a >= b for a, b in pairwise(edges)):
        raise node.refusal(f"boundaries of column {column!r} must be ascending")
    return edges


def _held(function: object) -> object:
    """Return the variable of the function that Bucketize makes of its boundaries; None if it is another function."""
    if not isinstance(function, Record) or not function.args or not isinstance(function.state, tuple):
        return None
    code = function.args[0]
    if not isinstance(code, Record) or OWN_FUNCTION not in [one for one in code.args if isinstance(one, str)]:
        return None
    slots = cast("tuple[object, ...]", function.state)[-1]
    cells = cast("dict[str, object]", slots).get("__closure__") if isinstance(slots, dict) else None
    cell = cast("tuple[object, ...]", cells)[0] if isinstance(cells, tuple) and cells else None
    is_cell = isinstance(cell, Record) and cell.name == "_make_cell" and len(cell.args) == 1
    return cast(object, cast(Record, cell).args[0]) if is_cell else None


def _check_type(node: WorkflowNode) -> None:
    kind = node.fields.get("out_dtype")
    if kind is not None and any(made not in ("float64", "float32") for made in node.outputs.values()):
        made = ", ".join(sorted(set(node.outputs.values())))
        raise node.refusal(f"out_dtype makes {made} of numbers with a fraction; leave it out and refit")


def _computed(state: Derivations, node: WorkflowNode, given: Table, chain: Callable[[Columns, str], Columns]) -> Table:
    made: Table = {}
    for name in node.inputs:
        scalar = given[name]
        _note_singles(state, scalar, name)
        kind = scalar.kind if scalar.kind == pa.float32() else pa.float64()
        made[name] = replace(scalar, part=chain(scalar.part, name), sql=None, kind=kind, index=None)
    return made


def _note_singles(state: Derivations, scalar: Scalar, name: str) -> None:
    if scalar.kind == pa.float32():
        state.note(f"{name!r} is float32: computed in double precision and rounded once here, in float32 in NVTabular")
