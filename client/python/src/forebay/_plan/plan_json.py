"""Parses the JSON of a plan.

The server writes every field, including null and empty ones, and proto3 JSON may represent 64-bit numbers and
infinities as strings; all of these are accepted. Fields not in plan.proto are errors, so that a misspelled field is not
silently ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, cast

from . import json_fields as read
from .chains import cols
from .columns import Columns
from .generated.ops import OPS
from .history import History
from .joins import AsOf, Join
from .json_fields import Fields
from .op import Op
from .outputs import Output, output
from .pack import Pack


class PlanFields(TypedDict):
    """The arguments of a `Plan`."""

    filter: str | None
    derive: dict[str, str]
    outputs: dict[str, Output]
    units: dict[str, str]
    join: list[Join]
    types: dict[str, str]
    history: History | None


def read_plan(plan: Fields) -> PlanFields:
    """Return the arguments of the plan that the JSON describes."""
    fields = read.fields("plan", plan, "filter", "derive", "outputs", "units", "join", "types", "history")
    derive = _derive(fields.get("derive"))
    outputs: dict[str, Output] = {}
    for i, item in enumerate(read.items("plan.outputs", fields.get("outputs"))):
        entry = read.fields(f"outputs[{i}]", item, "name", "dtype", "parts", "pack", "part")
        name = read.text(f"outputs[{i}].name", entry.get("name"))
        if name in outputs:
            raise ValueError(f"outputs[{i}]: the name {name!r} is used twice")
        parts = [
            _part(f"outputs[{i}].parts[{j}]", part) for j, part in enumerate(read.items("parts", entry.get("parts")))
        ]
        outputs[name] = output(
            parts,
            dtype=_dtype(f"outputs[{i}].dtype", entry.get("dtype")),
            pack=_pack(f"outputs[{i}].pack", entry.get("pack")),
            part=read.text(f"outputs[{i}].part", entry.get("part", "PAST")),
        )
    units, types = _facts(fields, "units", "unit"), _facts(fields, "types", "type")
    joins = [_join(f"join[{i}]", item) for i, item in enumerate(read.items("plan.join", fields.get("join")))]
    found = fields.get("history")
    history = None if found is None else History.read("plan.history", found)
    text = fields.get("filter")
    written = None if text is None else read.text("plan.filter", text)
    return PlanFields(
        filter=written, derive=derive, outputs=outputs, units=units, join=joins, types=types, history=history
    )


def _facts(plan: Fields, name: str, fact: str) -> dict[str, str]:
    """Return what a fit wrote about columns: their units or their types."""
    facts: dict[str, str] = {}
    for i, item in enumerate(read.items(f"plan.{name}", plan.get(name))):
        entry = read.fields(f"{name}[{i}]", item, "column", fact)
        facts[read.text(f"{name}[{i}].column", entry.get("column"))] = read.text(f"{name}[{i}].{fact}", entry.get(fact))
    return facts


def _derive(value: object) -> dict[str, str]:
    """Return the expressions by name, from a mapping or from the list that the server writes."""
    if isinstance(value, Mapping):
        entries = cast(Mapping[str, object], value).items()
        return {name: read.text(f"derive[{name!r}]", expression) for name, expression in entries}
    derive: dict[str, str] = {}
    for i, item in enumerate(read.items("plan.derive", value)):
        entry = read.fields(f"derive[{i}]", item, "name", "expr")
        derive[read.text(f"derive[{i}].name", entry.get("name"))] = read.text(f"derive[{i}].expr", entry.get("expr"))
    return derive


def _join(where: str, item: object) -> Join:
    fields = read.set_fields(where, item, "table", "on", "key", "columns", "prefix", "snapshot", "as_of")
    table, on, key, prefix, snapshot = (
        read.text(f"{where}.{name}", fields.get(name, "")) for name in ("table", "on", "key", "prefix", "snapshot")
    )
    columns = read.texts(f"{where}.columns", fields.get("columns"))
    return Join(table, on, columns, key, prefix, snapshot, _as_of(f"{where}.as_of", fields.get("as_of")))


def _as_of(where: str, item: object) -> AsOf | None:
    if item is None:
        return None
    fields = read.set_fields(where, item, "left", "right", "allow_exact", "tolerance_seconds")
    left = read.text(f"{where}.left", fields.get("left", ""))
    seconds = fields.get("tolerance_seconds")
    return AsOf(
        left,
        read.text(f"{where}.right", fields.get("right", "")) or left,
        fields.get("allow_exact", True) is not False,
        None if seconds is None else read.number(f"{where}.tolerance_seconds", seconds),
    )


def _part(where: str, item: object) -> Columns:
    entry = read.fields(where, item, "columns", "ops")
    names = [read.text(f"{where}.columns", name) for name in read.items(f"{where}.columns", entry.get("columns"))]
    chain = [_op(f"{where}.ops[{i}]", op) for i, op in enumerate(read.items(f"{where}.ops", entry.get("ops")))]
    # Unlike `cols`, a part of the server's JSON may repeat a column.
    return Columns(tuple(name for one in names for name in cols(one).names) or cols(*names).names, tuple(chain))


def _op(where: str, item: object) -> Op:
    entry = read.set_fields(where, item, *OPS)
    if len(entry) != 1:
        raise ValueError(f"{where} must name one op of {', '.join(OPS)}; it names {len(entry)}")
    ((name, body),) = entry.items()
    return OPS[name].read(f"{where}.{name}", body)


def _pack(where: str, value: object) -> Pack | None:
    if value is None:
        return None
    entry = read.fields(where, value, "length", "separator", "padding")
    separator = entry.get("separator")
    return Pack(
        read.whole(f"{where}.length", entry.get("length", 0)),
        separator=None if separator is None else read.whole(f"{where}.separator", separator),
        padding=read.whole(f"{where}.padding", entry.get("padding", 0)),
    )


def _dtype(where: str, value: object) -> str | None:
    return None if value is None else read.text(where, value)
