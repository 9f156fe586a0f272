"""`from_nvtabular`: a saved workflow as a fitted plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from forebay._plan.columns import Columns
from forebay._plan.fitted import FittedPlan
from forebay._plan.names import suggestion
from forebay._plan.outputs import Output, output
from forebay._plan.plan import Plan
from forebay._plan.plan_digest import plan_digest
from forebay._plan.translation import Translation
from forebay._plan.translation.derivations import Derivations, needed
from forebay._plan.translation.result import checked_dtype
from forebay._plan.translation.symbols import Index, Scalar

from . import numeric
from .node import WorkflowNode, parents_of, read_node
from .numeric import Table
from .saved import FIRST, SavedWorkflow

# Nodes of a graph, and of the longest path in it.
NODES_MAX = 10_000
DEPTH_MAX = 256

# The indices that Categorify reserves, besides 0 for padding.
NULL, UNKNOWN = 1, 2

OPS = "nvtabular.ops."
TRANSLATORS: dict[str, Callable[[Derivations, WorkflowNode, Table], Table]] = {
    "normalize.Normalize": numeric.normalize,
    "normalize.NormalizeMinMax": numeric.normalize_min_max,
    "logop.LogOp": numeric.log_op,
    "fill.FillMissing": numeric.fill_missing,
    "fill.FillMedian": numeric.fill_median,
    "clip.Clip": numeric.clip,
    "bucketize.Bucketize": numeric.bucketize,
}
# Operators that only choose columns, or describe them.
SELECTING = frozenset({"SelectionOp", "ConcatColumns", "SubsetColumns"})
DESCRIBING = frozenset({"AddMetadata", "AddProperties", "AddTags", "TagAsItemFeatures", "TagAsItemID"}) | frozenset(
    {"TagAsUserFeatures", "TagAsUserID"}
)

# What to do instead of an operator that is not translated.
INSTEAD = {
    "HashBucket": "its hash differs from that of hash_bucket: use fb.cols(…).hash_bucket(n) and train again",
    "HashedCross": "its hash differs from that of cross: use fb.cols(…).cross(…, buckets=n) and train again",
    "TargetEncoding": "its folds differ: use fb.cols(…).target_mean(label) and train again",
    "JoinGroupby": "use fb.cols(…).count_encode(), or aggregate with forebay-prepare",
    "JoinExternal": "use fb.join(…) or fb.cols(…).lookup(…)",
    "UDF": "it is a function, which is not run: write it in SQL, Plan(derive={…})",
    "Filter": "it is a function, which is not run: write it in SQL, Plan(filter=…)",
    "Dropna": "use Plan(filter='x IS NOT NULL')",
    "SubtractionOp": "select the columns that remain, node[[…]], and refit",
    "ListSlice": "use fb.cols(…).first_n(n) or last_n(n)",
    "Groupby": "aggregate with forebay-prepare",
    "DifferenceLag": "use a window function with forebay-prepare",
}


def from_nvtabular(
    folder: str | os.PathLike[str],
    *,
    outputs: Mapping[str, Sequence[str]] | None = None,
    dtype: str = "FLOAT32",
    schema: pa.Schema | None = None,
) -> Translation[FittedPlan]:
    """Translate a saved workflow of NVTabular to a plan with the values that it learned.

    `folder` is what ``workflow.save`` wrote. Its pickle is read without running anything, and without NVTabular.
    `outputs` maps names of outputs to columns of the workflow, side by side: ``{"cats": ["user", "item"]}``; by
    default, each column is an output. `dtype` is that of floating-point numbers; FLOAT64 keeps NVTabular's doubles.
    `schema` is that of the dataset, ``client.schema(name)``: with it, columns without NaN need no derived ones.

    Raises `UntranslatableStage` for an operator without an equivalent, and ValueError for a damaged folder.
    """
    checked_dtype(dtype)
    if not isinstance(cast(object, folder), (str, os.PathLike)):
        raise TypeError(f"from_nvtabular expects the folder of a saved workflow, not {folder!r}")
    saved = SavedWorkflow(os.fspath(folder))
    graph = _Graph(saved, Derivations(schema))
    last, made = graph.run()
    state = graph.state
    grouped = {name: [name] for name in last.outputs} if outputs is None else _checked(outputs, last)
    every = {name: _output(state, name, columns, last, made, dtype) for name, columns in grouped.items()}
    plan = Plan(outputs=every, derive=needed(state.derive, every))
    return Translation(FittedPlan(plan_digest(plan.to_dict()), plan), tuple(state.differences), "NVTabular")


class _Graph:
    """The nodes of a workflow, each translated once."""

    def __init__(self, saved: SavedWorkflow, state: Derivations) -> None:
        self.state = state
        self._saved = saved
        self._made: dict[int, tuple[WorkflowNode, Table]] = {}

    def run(self) -> tuple[WorkflowNode, Table]:
        """Return the last node and its columns."""
        return self._translated(self._saved.output_node(), 0)

    def _translated(self, record: Any, depth: int) -> tuple[WorkflowNode, Table]:
        if id(record) in self._made:
            return self._made[id(record)]
        where = self._saved.pickle
        if depth > DEPTH_MAX or len(self._made) >= NODES_MAX:
            raise ValueError(f"{where}: more than {NODES_MAX} nodes, or {DEPTH_MAX} after each other")
        given: Table = {}
        for parent in parents_of(where, record):
            given |= self._translated(parent, depth + 1)[1]
        node = read_node(where, record, f"{len(self._made) + 1}:")
        for name in node.inputs:
            if name not in given:
                given[name] = self.state.column(name, "the workflow reads")
        made = node, self._columns(node, given)
        self._made[id(record)] = made
        return made

    def _columns(self, node: WorkflowNode, given: Table) -> Table:
        if any(node.outputs.get(name) == "list" for name in node.inputs):
            raise node.refusal("reads a column of lists, which is not translated; use the list ops of fb.cols")
        name = node.short_name
        if name in SELECTING or name in DESCRIBING:
            missing = [one for one in node.outputs if one not in given]
            if missing:
                raise node.refusal(f"reads column {missing[0]!r}, which no node makes; save the workflow again")
            return {one: given[one] for one in node.outputs}
        if name == "Rename":
            if len(node.inputs) != len(node.outputs):
                counts = f"{len(node.inputs)} columns to {len(node.outputs)}"
                raise node.refusal(f"renames {counts}; save the workflow again")
            return {new: given[old] for old, new in zip(node.inputs, node.outputs, strict=True)}
        if node.class_name == f"{OPS}categorify.Categorify":
            return {one: self._categorified(node, one, given[one]) for one in node.inputs}
        translator = TRANSLATORS.get(node.class_name.removeprefix(OPS))
        if translator is None:
            raise node.refusal(INSTEAD.get(name, "no op does the same: remove it, or compute its columns before"))
        return translator(self.state, node, given)

    def _categorified(self, node: WorkflowNode, name: str, scalar: Scalar) -> Scalar:
        """Return the index of a column: 1 for null, 2 for unknown values, then the values."""
        for parameter, plain in (("encode_type", "joint"), ("split_out", 1)):
            given = node.fields.get(parameter)
            if given != plain:
                raise node.refusal(f"{parameter} {given!r} is not supported; use {plain!r} and refit")
        if node.fields.get("single_table"):
            raise node.refusal("single_table is not supported; refit without it")
        if node.fields.get("num_buckets"):
            raise node.refusal("num_buckets hashes unknown values, differently on CPU and GPU; refit without it")
        storage = cast("dict[str, Any]", node.fields.get("storage_name") or {}).get(name, name)
        files = cast("dict[str, Any]", node.fields.get("categories") or {})
        values = self._saved.categories(files.get(storage), str(storage))
        is_float = any(isinstance(value, float) for value in values)
        if is_float and scalar.kind is not None and pa.types.is_integer(scalar.kind):
            if any(not float(value).is_integer() for value in values):
                raise node.refusal(f"has categories with a fraction for column {name!r} of type {scalar.kind}")
            values, is_float = [int(value) for value in values], False
        elif is_float and scalar.kind is None:
            self.state.note(
                f"{node.uid}: categories of {name!r} are floating-point numbers, as pandas reads integers with nulls; "
                "pass schema= if the column has integers"
            )
        known = [*values, math.nan] if is_float else values
        # With a bucket for unknown values, index 0 is null alone.
        base = scalar.part.vocab(values=known, oov_buckets=1)
        codes = {0: NULL, len(known) + 1: UNKNOWN} | {place + 1: place + FIRST for place in range(len(values))}
        if is_float:
            codes[len(known)] = NULL
        index = Index(base, len(known) + 2, codes)
        return Scalar(index.columns(), None, pa.int64(), index, null=False, nan=False)


def _checked(outputs: Mapping[str, Sequence[str]], last: WorkflowNode) -> dict[str, list[str]]:
    if not outputs:
        raise ValueError("outputs is empty: name one or more columns of the workflow")
    for name, columns in outputs.items():
        if isinstance(columns, str) or not columns:
            raise TypeError(f"outputs: {name!r} must be a list of columns: {{{name!r}: [{columns!r}]}}")
        for column in columns:
            if column not in last.outputs:
                raise ValueError(f"outputs: {name!r}: no column {column!r}: {suggestion(column, last.outputs)}")
    return {name: list(columns) for name, columns in outputs.items()}


def _output(
    state: Derivations, name: str, columns: Sequence[str], last: WorkflowNode, made: Table, dtype: str
) -> Output:
    types = {last.outputs[column] for column in columns}
    scalars = [made[column] for column in columns]
    if len(scalars) == 1 and not scalars[0].part.ops and not types <= {"float32", "float64"}:
        return output(scalars[0].part.as_stored())
    if types <= {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}:
        width = "INT32" if types <= {"int8", "int16", "int32", "uint8", "uint16"} else "INT64"
        return output(_merged([scalar.part for scalar in scalars]), dtype=width)
    if dtype != "FLOAT64" and "float64" in types:
        state.note(f'{name}: {dtype} here, float64 in NVTabular; dtype="FLOAT64" keeps its doubles')
    # A null is NaN in pandas.
    parts = [scalar.part.fill_null(math.nan) if scalar.null else scalar.part for scalar in scalars]
    return output(_merged(parts), dtype=dtype)


def _merged(parts: Sequence[Columns]) -> list[Columns]:
    """Return the parts of an output, as few as possible."""
    found: list[Columns] = []
    for part in parts:
        if found and found[-1].ops == part.ops and part.names[0] not in found[-1].names:
            found[-1] = Columns((*found[-1].names, *part.names), part.ops)
        else:
            found.append(part)
    return found
