"""One node of a saved workflow: its operator's class and attributes, and the names of its columns."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from forebay.errors import UntranslatableStage

from .pickled import Record

NODE = ("merlin.dag.node", "nvtabular.workflow.node")
NUMBER_TYPE = re.compile(r"[fiu][1248]")


@dataclass(frozen=True)
class WorkflowNode:
    """A node. `fields` are the attributes of its operator."""

    uid: str
    class_name: str
    fields: dict[str, Any]
    inputs: tuple[str, ...]
    """The columns that it reads."""
    outputs: dict[str, str]
    """The columns that it makes, and their types, such as int64."""

    @property
    def short_name(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(".")[2]

    def refusal(self, problem: str) -> UntranslatableStage:
        """Return an error that names this node and its columns."""
        return UntranslatableStage(self.uid, self.class_name, problem)

    def number(self, name: str, value: Any) -> float:
        """Return a finite number, which may be a scalar of NumPy."""
        found = plain_number(value)
        if found is None or not math.isfinite(found):
            raise self.refusal(f"{name} must be a finite number, not {found!r}; fit the workflow again")
        return found

    def learned(self, name: str, column: str) -> float:
        """Return a learned number of a column."""
        values = self.fields.get(name)
        if not isinstance(values, dict) or column not in values:
            raise self.refusal(f"has no {name} of column {column!r}; fit the workflow again")
        return self.number(f"{name} of column {column!r}", cast("dict[str, Any]", values)[column])


def read_node(where: str, node: Any, uid: str) -> WorkflowNode:
    """Return a node of the graph."""
    fields = fields_of(where, node, "Node")
    op = fields.get("op")
    if not isinstance(op, Record):
        raise ValueError(f"{where}: a node without an operator; save the fitted workflow again")
    selector = fields.get("_selector")
    outputs = _schema(where, fields.get("output_schema"))
    inputs = tuple(_schema(where, fields.get("input_schema")))
    if isinstance(selector, Record) and not selector.fields.get("_tags"):
        inputs = tuple(_names(where, selector)) or inputs
    return WorkflowNode(f"{uid} {', '.join(outputs)}", f"{op.module}.{op.name}", op.fields, inputs, outputs)


def parents_of(where: str, node: Any) -> list[Any]:
    """Return the nodes before a node, in the order in which their columns are joined."""
    fields = fields_of(where, node, "Node")
    found: list[Any] = []
    for name in ("parents", "dependencies"):
        listed = fields.get(name)
        if not isinstance(listed, list):
            raise ValueError(f"{where}: {name} of a node must be a list; save the workflow again")
        for one in cast("list[Any]", listed):
            found += cast("list[Any]", one) if isinstance(one, list) else [one]
    return found


def fields_of(where: str, value: Any, name: str) -> dict[str, Any]:
    """Return the attributes of a record of this class."""
    if not isinstance(value, Record) or not value.name.endswith(name) or not isinstance(value.state, dict):
        raise ValueError(f"{where}: expected a {name} with attributes; save the fitted workflow again")
    return value.fields


def plain_number(value: Any) -> float | None:
    """Return a number of Python or NumPy; None if it is something else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, Record) or value.name != "scalar" or len(value.args) != 2:
        return None
    kind, data = value.args
    code = kind.args[0] if isinstance(kind, Record) and kind.name == "dtype" and kind.args else None
    if not isinstance(code, str) or not NUMBER_TYPE.fullmatch(code) or not isinstance(data, bytes):
        return None
    order = cast("tuple[Any, ...]", kind.state)[1] if isinstance(kind.state, tuple) else "<"
    dtype = np.dtype(f"{'>' if order == '>' else '<'}{code}")
    return float(np.frombuffer(data, dtype)[0]) if len(data) == dtype.itemsize else None


def _schema(where: str, schema: Any) -> dict[str, str]:
    """Return the columns of a schema, and their types."""
    columns = fields_of(where, schema, "Schema").get("column_schemas")
    if not isinstance(columns, dict):
        raise ValueError(f"{where}: a schema without columns; fit the workflow before saving it")
    found: dict[str, str] = {}
    for name, column in cast("dict[str, Any]", columns).items():
        fields = fields_of(where, column, "ColumnSchema")
        kind = fields.get("dtype")
        is_list = fields.get("is_list") or fields.get("is_ragged")
        found[str(name)] = (
            "list" if is_list else str(kind.fields.get("name")) if isinstance(kind, Record) else "unknown"
        )
    return found


def _names(where: str, selector: Record) -> list[str]:
    names = selector.fields.get("_names")
    groups = selector.fields.get("subgroups")
    if not isinstance(names, list) or not isinstance(groups, list):
        raise ValueError(f"{where}: a selector without names; save the workflow again")
    found = [str(name) for name in cast("list[Any]", names)]
    for group in cast("list[Any]", groups):
        if isinstance(group, Record) and group is not selector:
            found += [str(name) for name in cast("list[Any]", group.fields.get("_names") or [])]
    return list(dict.fromkeys(found))
