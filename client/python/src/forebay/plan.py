"""The plan builder: which rows pass, what is computed from them, how it is laid out.

Builds and reads the JSON of the server's plan.proto and checks what needs no data. Columns, types and SQL are the
server's to judge. Every object here is immutable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from .columns import Columns, cols
from .fit_result import checked_plan, read_object, unwrapped
from .op import Json
from .outputs import DTYPES, DType, Output, output
from .plan_json import read_plan

__all__ = ["DTYPES", "Columns", "DType", "Output", "Plan", "cols", "output"]


@dataclass(frozen=True, init=False)
class Plan:
    """Which rows of a dataset pass, what is computed from them, and how it is laid out.

    `filter` and the expressions of `derive` are SQL over the dataset's columns. `outputs` names the columns of every
    batch; each is one `cols` chain, a list of them side by side, or an `output` with a dtype of its own.
    """

    filter: str
    derive: Mapping[str, str] = field(hash=False)
    outputs: Mapping[str, Output] = field(hash=False)
    units: Mapping[str, str] = field(hash=False)
    """What the columns of dates and times counted where the plan was fitted; written by a fit."""

    def __init__(
        self,
        *,
        outputs: Mapping[str, Columns | Sequence[Columns] | Output],
        filter: str | None = None,  # noqa: A002 (the contract's name)
        derive: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> None:
        if filter is not None and not isinstance(cast(object, filter), str):
            raise TypeError(f"filter must be an SQL expression in text, not {filter!r}")
        if not isinstance(cast(object, outputs), Mapping) or not outputs:
            raise TypeError('outputs must map names to cols chains: outputs={"dense": fb.cols("a", "b")}')
        for name, expr in (derive or {}).items():
            if not isinstance(cast(object, expr), str) or not expr.strip():
                raise TypeError(f"derive: {name!r} must be an SQL expression in text, not {expr!r}")
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
        object.__setattr__(self, "units", dict(units or {}))

    @property
    def needs_fit(self) -> bool:
        """Whether an op is left to learn something: a mean, a bound, a vocabulary."""
        return any(op.learns for out in self.outputs.values() for part in out.parts for op in part.ops)

    def to_dict(self) -> Json:
        """Return the plan as the server's JSON has it."""
        plan: Json = {}
        if self.filter:
            plan["filter"] = self.filter
        if self.derive:
            plan["derive"] = [{"name": name, "expr": expr} for name, expr in self.derive.items()]
        plan["outputs"] = [
            {"name": name, "dtype": out.dtype, "parts": [part.to_dict() for part in out.parts]}
            for name, out in self.outputs.items()
        ]
        if self.units:
            plan["units"] = [{"column": column, "unit": unit} for column, unit in self.units.items()]
        return plan

    def to_json(self) -> str:
        """Return the plan as one line of JSON; equal plans give equal lines."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_dict(cls, plan: Mapping[str, object]) -> Plan:
        """Read what `to_dict` writes, or the server's JSON of a plan; an unknown field is an error."""
        return cls(**read_plan(plan))

    @classmethod
    def from_json(cls, source: str | bytes | os.PathLike[str]) -> Plan:
        """Read a plan from a file, or from text that begins with a brace.

        Takes a bare plan, and the ``{"version": 1, "plan_id": …, "plan": …}`` of ``forebay fit --json``: an error
        if somebody has edited it since, or if its version is not known.
        """
        found = unwrapped(read_object(source))
        return cls.from_dict(checked_plan(found) if isinstance(found.get("plan"), dict) else found)
