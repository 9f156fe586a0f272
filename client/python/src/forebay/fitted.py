"""Fitted plans and their files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from .fit_result import FIT_VERSION, checked_plan, read_object, unwrapped
from .plan import Plan


@dataclass(frozen=True)
class FittedPlan:
    """A plan with its learned parameters, and the id under which the server stores it."""

    plan_id: str
    plan: Plan
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What is probably not meant, such as a vocabulary without values; `Client.fit` raises each as a UserWarning."""

    def __repr__(self) -> str:
        return f"FittedPlan {self.plan_id} of {self.plan!r}"

    def to_json(self) -> str:
        """Return the text of a file for `FittedPlan.from_json`, `Plan.from_json` and ``forebay --plan``.

        Equal fits give equal texts, with one learned value per line, for version control.
        """
        result = {"version": FIT_VERSION, "plan_id": self.plan_id, "plan": self.plan.to_dict()}
        return json.dumps(result, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, source: str | bytes | os.PathLike[str]) -> FittedPlan:
        """Read a fit's result from a file, or from text that starts with a brace.

        Accepts the output of `to_json` and ``forebay fit --json``. Rejects a result of an unknown version, or whose
        plan does not match its id.
        """
        result = unwrapped(read_object(source))
        if not isinstance(result.get("plan"), dict) or not result.get("plan_id"):
            raise ValueError("not a fit's result: missing plan_id or plan; read a bare plan with Plan.from_json")
        plan = checked_plan(result)
        return cls(str(result["plan_id"]), Plan.from_dict(plan))
