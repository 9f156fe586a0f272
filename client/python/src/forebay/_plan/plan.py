"""Plans: a filter, derived columns and outputs.

Builds and reads the JSON of the server's plan.proto, and checks it as far as possible without data. The server checks
columns, types and SQL. All objects are immutable.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa

from forebay._show.terminal_text import Branch, html_tree, tree

from .chains import cols
from .columns import Columns
from .fit_result import checked_plan, read_object, unwrapped
from .history import History
from .history import history as read_history
from .joins import Join
from .message import Json
from .outputs import DTYPES, DType, Output, output
from .plan_json import read_plan
from .split import Gap, Moment, both, lost_split, split_filters, time_filters

__all__ = ["DTYPES", "Columns", "DType", "Output", "Plan", "checked_filter", "cols", "output"]


@dataclass(frozen=True, init=False)
class Plan:
    """A filter on the rows of a dataset, derived columns, and the outputs of a batch.

    `filter` and the expressions of `derive` are SQL over the columns of the dataset and of `join`. `outputs` maps names
    to `cols` chains, lists of chains side by side, or an `output` with an explicit dtype.
    """

    filter: str
    derive: Mapping[str, str] = field(hash=False)
    outputs: Mapping[str, Output] = field(hash=False)
    join: Sequence[Join]
    """Joins with other datasets, made by `forebay.join`."""
    units: Mapping[str, str] = field(hash=False)
    """Units of date and time columns when the plan was fitted; set by a fit."""
    types: Mapping[str, str] = field(hash=False)
    """Types of the stored columns that the plan read when it was fitted; set by a fit."""
    training_filter: str | None
    """Filter of the rows that parameters are learned from; None: those of `filter`. Set by `split`."""
    history: History | None
    """The series whose earlier rows `lag`, `diff` and `rolling` read: ``{"by": columns, "order": column}``."""

    def __init__(
        self,
        *,
        outputs: Mapping[str, Columns | Sequence[Columns] | Output],
        filter: str | None = None,  # noqa: A002 (the contract's name)
        derive: Mapping[str, str] | None = None,
        join: Join | Sequence[Join] = (),
        units: Mapping[str, str] | None = None,
        types: Mapping[str, str] | None = None,
        training_filter: str | None = None,
        history: History | Mapping[str, object] | None = None,
    ) -> None:
        for name, given in (("filter", filter), ("training_filter", training_filter)):
            if given is not None and not isinstance(cast(object, given), str):
                raise TypeError(f"{name} must be a string with an SQL expression, not {given!r}")
        if not isinstance(cast(object, outputs), Mapping) or not outputs:
            raise TypeError('outputs must map names to cols chains: outputs={"dense": fb.cols("a", "b")}')
        for name, expr in (derive or {}).items():
            if not isinstance(cast(object, expr), str) or not expr.strip():
                raise TypeError(f"derive: {name!r} must be a string with an SQL expression, not {expr!r}")
        joins = (join,) if isinstance(join, Join) else tuple(join)
        for i, item in enumerate(joins):
            if not isinstance(cast(object, item), Join):
                raise TypeError(f'join: item {i} must be fb.join("table", on=…, columns=[…]), not {item!r}')
        made: dict[str, Output] = {}
        for name, parts in outputs.items():
            if not isinstance(cast(object, name), str) or not name:
                raise TypeError(f"outputs: a name must be text, not {name!r}")
            try:
                made[name] = parts if isinstance(parts, Output) else output(parts)
            except (TypeError, ValueError) as error:
                raise type(error)(f"outputs: {name!r}: {error}") from error
        object.__setattr__(self, "filter", filter or "")
        object.__setattr__(self, "derive", dict(derive or {}))
        object.__setattr__(self, "outputs", made)
        object.__setattr__(self, "join", joins)
        object.__setattr__(self, "units", dict(units or {}))
        object.__setattr__(self, "types", dict(types or {}))
        object.__setattr__(self, "training_filter", training_filter)
        object.__setattr__(self, "history", read_history(history))

    def __repr__(self) -> str:
        return tree(self._heading(), self._branches())

    def _repr_html_(self) -> str:
        return html_tree(self._heading(), self._branches())

    def _heading(self) -> str:
        return "Plan, to be fitted" if self.needs_fit else "Plan"

    def _branches(self) -> list[Branch]:
        """Return what the plan consists of, in the order in which it is applied."""
        found = [Branch("join", [repr(item)]) for item in self.join]
        found += [Branch("filter", [repr(self.filter)])] if self.filter else []
        if self.training_filter is not None:
            found += [Branch("learns from the rows of filter", [repr(self.training_filter)])]
        found += [Branch("history", [str(self.history)])] if self.history is not None else []
        found += [Branch(f"derive[{name!r}]", [expr]) for name, expr in self.derive.items()]
        for name, out in self.outputs.items():
            found.append(out.branch(name if out.dtype is None else f"{name}: {out.dtype}"))
        return found

    @property
    def training(self) -> Plan | None:
        """The plan that this one takes its learned parameters from; None if it learns from its own rows."""
        if self.training_filter is None:
            return None
        return replace(self, filter=self.training_filter, training_filter=None)

    @property
    def needs_fit(self) -> bool:
        """Whether an op has parameters to learn: a mean, a bound, a vocabulary."""
        return any(op.learns for out in self.outputs.values() for part in out.parts for op in part.ops)

    @property
    def has_selectors(self) -> bool:
        """Whether columns are selected by type or name, so that the plan requires `resolve`."""
        return any(part.selector is not None for out in self.outputs.values() for part in out.parts)

    def resolve(self, schema: pa.Schema) -> Plan:
        """Return the plan with the names of the selected columns, in the schema's order.

        A client does this with the dataset's schema when it fits or streams the plan. Raises ValueError if a selection
        is empty.
        """
        if not self.has_selectors:
            return self
        outputs: dict[str, Output] = {}
        for name, out in self.outputs.items():
            try:
                outputs[name] = replace(out, parts=tuple(part.resolve(schema) for part in out.parts))
            except ValueError as error:
                raise ValueError(f"outputs: {name!r}: {error}") from None
        return replace(self, outputs=outputs)

    def with_filter(self, filter: str | None, *, replaces_split: bool = False) -> Plan:  # noqa: A002 (the contract's name)
        """Return the plan with its filter replaced, or without one; a validation plan still learns from training rows.

        Warns if that undoes a `split`, unless `replaces_split` is set: `and_filter` adds a condition to it.
        """
        filter = checked_filter("with_filter", filter)  # noqa: A001 (the contract's name)
        lost = lost_split(self.filter, filter)
        if lost is not None and not replaces_split:
            warnings.warn(
                f"the filter replaces that of the plan, and with it the split by {lost!r}: rows of both sides pass; "
                "use and_filter to add a condition to a side of a split, or replaces_split=True to drop the split",
                stacklevel=2,
            )
        return replace(self, filter=filter)

    def and_filter(self, filter: str) -> Plan:  # noqa: A002 (the contract's name)
        """Return the plan for those of its rows that pass this filter, too."""
        more = checked_filter("and_filter", filter)
        return replace(self, filter=both(self.filter, f"({more})") if more else self.filter)

    def split(
        self,
        *,
        by: str | None = None,
        val: float | None = None,
        seed: int | None = None,
        by_time: str | None = None,
        train_until: Moment | None = None,
        val_until: Moment | None = None,
        gap: Gap | None = None,
    ) -> tuple[Plan, Plan]:
        """Return two plans, for training and for validation, of disjoint rows of this plan.

        A row belongs to validation if a hash of its value in the column `by` is within the share `val`, 0.1 by default,
        so all rows of one user, say, are on one side, and stay there when files are added. Rows with null count as one
        value. Without `by`, each row is drawn by its index in the dataset. Another `seed` draws another split. Together
        the plans have all rows of this one.

        ``split(by_time="ts", train_until="2025-10-01", val_until="2025-11-01", gap="7 days")`` divides at a time, so
        that nothing of the future is learned: training rows are before `train_until`, validation rows from `gap` after
        it to before `val_until`, or to the end. Rows in the gap, from `val_until` on, and without a time are left
        out. Times are ISO 8601 text or objects; without an offset from UTC they are local times of the column's
        zone. A column of numbers takes whole numbers. A column of times given as `by` is drawn like any
        other, with validation rows between training rows, and a client warns.

        Both plans have the parameters learned from the training rows: fitting or streaming the validation plan fits the
        training plan.
        """
        if by_time is None:
            if (train_until, val_until, gap) != (None, None, None):
                raise TypeError("split: train_until, val_until and gap are those of a split by_time, a column's name")
            rest, share = split_filters(by, 0.1 if val is None else val, 0 if seed is None else seed)
        else:
            if (by, val, seed) != (None, None, None):
                raise TypeError(
                    "split: by, val and seed draw rows, by_time divides them at train_until: pass one of both"
                )
            rest, share = time_filters(by_time, train_until, val_until, gap)
        training = replace(self, filter=both(self.filter, rest))
        learned_from = training.filter if self.training_filter is None else self.training_filter
        return training, replace(self, filter=both(self.filter, share), training_filter=learned_from)

    def to_dict(self) -> Json:
        """Return the plan as JSON of the server."""
        plan: Json = {}
        if self.filter:
            plan["filter"] = self.filter
        if self.derive:
            plan["derive"] = [{"name": name, "expr": expr} for name, expr in self.derive.items()]
        plan["outputs"] = [
            {"name": name}
            | ({} if out.dtype is None else {"dtype": out.dtype})
            | {"parts": [part.to_dict() for part in out.parts]}
            | ({} if out.pack is None else {"pack": out.pack.to_dict()})
            | ({} if out.part == "PAST" else {"part": out.part})
            for name, out in self.outputs.items()
        ]
        if self.join:
            plan["join"] = [item.to_dict() for item in self.join]
        if self.units:
            plan["units"] = [{"column": column, "unit": unit} for column, unit in self.units.items()]
        if self.types:
            plan["types"] = [{"column": column, "type": kind} for column, kind in self.types.items()]
        if self.history is not None:
            plan["history"] = self.history.to_dict()
        return plan

    def to_json(self) -> str:
        """Return the plan as one line of JSON; equal plans give equal lines."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_dict(cls, plan: Mapping[str, object]) -> Plan:
        """Read the result of `to_dict`, or the server's JSON of a plan; unknown fields are errors."""
        return cls(**read_plan(plan))

    @classmethod
    def from_json(cls, source: str | bytes | os.PathLike[str]) -> Plan:
        """Read a plan from a file, or from text that starts with a brace.

        Accepts a bare plan, and the ``{"version": 1, "plan_id": …, "plan": …}`` of ``forebay fit --json`` unless it was
        edited or its version is unknown.
        """
        found = unwrapped(read_object(source))
        return cls.from_dict(checked_plan(found) if isinstance(found.get("plan"), dict) else found)


def checked_filter(function: str, filter: str | None) -> str:  # noqa: A002 (the contract's name)
    """Return a filter without spaces around it, empty for None; raise TypeError for anything but text."""
    if filter is not None and not isinstance(cast(object, filter), str):
        raise TypeError(f"{function}: filter must be a string with an SQL expression or None, not {filter!r}")
    return (filter or "").strip()
