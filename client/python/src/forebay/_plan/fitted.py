"""Fitted plans and their files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from . import learned
from .fit_result import FIT_VERSION, checked_plan, read_object, unwrapped
from .plan import Plan
from .plan_digest import plan_digest

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class FittedPlan:
    """A plan with its learned parameters, and the id under which the server stores it."""

    plan_id: str
    plan: Plan
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What is probably not meant, such as a vocabulary without values; `Client.fit` raises each as a UserWarning."""

    cached: bool = field(default=False, compare=False)
    """Whether the server learned nothing for this fit: it kept the result, or another caller was computing it."""

    _text: str | None = field(default=None, init=False, repr=False, compare=False)
    """The plan as JSON, once it was needed: a plan with large vocabularies takes a while to encode."""

    def with_filter(self, filter: str | None, *, replaces_split: bool = False) -> FittedPlan:  # noqa: A002 (the contract's name)
        """Return the plan with another filter, or without one, and the same parameters, such as for validation rows.

        Warns if that undoes a `Plan.split`, unless `replaces_split` is set: `and_filter` adds a condition to it.
        """
        return self._of(self.plan.with_filter(filter, replaces_split=replaces_split))

    def and_filter(self, filter: str) -> FittedPlan:  # noqa: A002 (the contract's name)
        """Return the plan for those of its rows that pass this filter, too, with the same parameters."""
        return self._of(self.plan.and_filter(filter))

    def _of(self, plan: Plan) -> FittedPlan:
        if plan.filter == self.plan.filter:
            return self
        return FittedPlan(plan_digest(plan.to_dict()), plan, cached=self.cached)

    def __repr__(self) -> str:
        return f"FittedPlan {self.plan_id} of {self.plan!r}"

    def _repr_html_(self) -> str:
        return learned.described_html(self.plan, f"fitted plan {self.plan_id}")

    def describe(self) -> str:
        """Return a table of the ops of each output and column, with what they learned."""
        return learned.described(self.plan, f"plan {self.plan_id}")

    def vocab(self, output: str, column: str) -> list[str | int | float | Decimal | None]:
        """Return the vocabulary of a column: the value of each index.

        Index 0 is None: null and, unless the op has `oov_buckets`, values that are not in the list. The buckets are the
        indices after the list.
        """
        return learned.vocabulary(self.plan, output, column)

    def scales(self, output: str, column: str) -> dict[learned.Value | tuple[learned.Value, ...], tuple[float, float]]:
        """Return what ``standardize(by=…)``, `min_max` or `robust` learned of each group: its shift and its divisor.

        The keys are the values of the column `by`, or tuples of those of several. ``y * divisor + shift`` turns a
        prediction back.
        """
        return learned.scales(self.plan, output, column)

    @property
    def cardinalities(self) -> dict[str, dict[str, int]]:
        """The number of indices per output and column, in the order of the output's columns.

        ``torch.nn.Embedding(n, width)`` for ``n in fitted.cardinalities["cats"].values()`` has a row for every index,
        including 0 and the buckets of unknown values. Outputs that are not indices are absent. A column that is crossed
        with others is named ``"a x b"``; one that occurs again, ``"a.hash_bucket"`` after its op.
        """
        return learned.cardinalities(self.plan)

    def to_frame(self) -> pandas.DataFrame:
        """Return a row per op of each output and column, with its parameters as columns. Requires pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame requires pandas: pip install pandas, or use describe()") from error
        rows = [
            {"output": step.output, "column": step.column, "op": step.op.name, **learned.parameters(step.op)}
            for step in learned.steps(self.plan)
        ]
        return pandas.DataFrame(rows)

    def to_json(self) -> str:
        """Return the text of a file for `FittedPlan.from_json`, `Plan.from_json` and ``forebay --plan``.

        Equal fits give equal texts, with one learned value per line, for version control.
        """
        result = {"version": FIT_VERSION, "plan_id": self.plan_id, "plan": self.plan.to_dict()}
        return json.dumps(result, ensure_ascii=False, indent=2) + "\n"

    def plan_text(self) -> str:
        """Return the plan as JSON."""
        if self._text is None:
            self._keep_text(self.plan.to_dict())
        assert self._text is not None
        return self._text

    def _keep_text(self, plan: dict[str, Any]) -> None:
        object.__setattr__(self, "_text", json.dumps(plan, ensure_ascii=False, allow_nan=False))

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
        fitted = cls(str(result["plan_id"]), Plan.from_dict(plan))
        fitted._keep_text(plan)
        return fitted
