"""A plan that has learned, and the id that it is kept under."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .plan import Plan


@dataclass(frozen=True)
class FittedPlan:
    """A plan with what was learned written in it, and the id under which the server keeps it."""

    plan_id: str
    plan: Plan

    def to_json(self) -> str:
        """Return what `Plan.from_json` and ``forebay fit --json`` understand, to be kept in a file."""
        return json.dumps({"plan_id": self.plan_id, "plan": self.plan.to_dict()}, ensure_ascii=False)
