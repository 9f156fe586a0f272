"""A plan that has learned, the id that it is kept under, and the file that both are kept in."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from .fit_result import FIT_VERSION, checked_plan, read_object, unwrapped
from .plan import Plan


@dataclass(frozen=True)
class FittedPlan:
    """A plan with what was learned written in it, and the id under which the server keeps it."""

    plan_id: str
    plan: Plan

    def to_json(self) -> str:
        """Return what `FittedPlan.from_json`, `Plan.from_json` and ``forebay --plan`` read, to be checked in as a file.

        Equal fits give equal texts, every learned value on a line of its own.
        """
        result = {"version": FIT_VERSION, "plan_id": self.plan_id, "plan": self.plan.to_dict()}
        return json.dumps(result, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, source: str | bytes | os.PathLike[str]) -> FittedPlan:
        """Read a fit's result from a file, or from text that begins with a brace.

        Takes what `to_json` and ``forebay fit --json`` write. A result of an unknown version, and one whose plan
        is not that of its id, are errors.
        """
        result = unwrapped(read_object(source))
        if not isinstance(result.get("plan"), dict) or not result.get("plan_id"):
            raise ValueError("not a fit's result: it has no plan_id and plan; a bare plan is read by Plan.from_json")
        plan = checked_plan(result)
        return cls(str(result["plan_id"]), Plan.from_dict(plan))
