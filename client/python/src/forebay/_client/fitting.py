"""Fits plans, and finds what a request names a plan by: the base of `Client` for calls that take a plan."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan
from forebay._plan.split import split_columns
from forebay._show.progress import Progress, read_progress, reporting
from forebay.errors import StreamError

from .connection import Connection, Json
from .credentials import Credentials
from .looking import Looking
from .mixture import Mixture, check_fitted
from .options import normalized_sample
from .targets import check_plan, check_source


class Fitting(Looking):
    """The calls of `Client` that fit plans."""

    def __init__(
        self, urls: Sequence[str], connection: Connection, *, retry_seconds: float, credentials: Credentials
    ) -> None:
        super().__init__(urls, connection, retry_seconds=retry_seconds, credentials=credentials)
        self._resolutions: dict[tuple[str, Plan], Plan] = {}
        self._fits: dict[tuple[str, str], FittedPlan] = {}
        # Columns of splits whose type was checked, with their datasets.
        self._splits: set[tuple[str, str]] = set()

    def fit(
        self,
        dataset: str,
        plan: Plan,
        *,
        sample: float = 1.0,
        sample_seed: int = 0,
        refit: bool = False,
        progress: Progress | bool | None = None,
    ) -> FittedPlan:
        """Fit the plan: learn its missing parameters from the rows that pass its filter.

        `sample` and `sample_seed` choose the rows to learn from, as in `StreamOptions`; they are not part of the plan.

        The server keeps the result for the dataset's current files and returns it to every later fit of the same plan:
        `FittedPlan.cached` is then True. `refit` makes it learn again.

        `progress` is called with every `FitProgress`; True and None show a line if stderr is a terminal, False shows
        nothing. Warnings of the result, such as a vocabulary without values, are raised as UserWarning.
        """
        if not isinstance(cast(object, plan), Plan):
            raise TypeError(f"fit expects a Plan, not {plan!r}")
        self._check_split(dataset, plan)
        if plan.training is not None:
            return self.fit(
                dataset, plan.training, sample=sample, sample_seed=sample_seed, refit=refit, progress=progress
            ).with_filter(plan.filter)
        plan = self._resolved(dataset, plan)
        request: Json = {"dataset": dataset, "plan": plan.to_dict()}
        request |= {name: value for name, value in normalized_sample(sample, sample_seed).items() if sample != 1}
        if refit:
            request["refit"] = True

        with reporting("fit", progress) as show:

            def learn(connection: Connection) -> FittedPlan:
                for update in connection.act("fit", request):
                    if update.get("result"):
                        found = cast(Json, update["result"])
                        noted = tuple(str(text) for text in cast("list[object]", found.get("warnings") or []))
                        plan = Plan.from_dict(cast(Json, found["plan"]))
                        return FittedPlan(str(found["plan_id"]), plan, noted, bool(found.get("cached")))
                    if update.get("progress"):
                        show(read_progress(cast(Json, update["progress"])))
                raise StreamError("the fit ended without a result")

            fitted = self._on_any(learn)
        for noted in fitted.warnings:
            warnings.warn(noted, UserWarning, stacklevel=2)
        return fitted

    def fitted(
        self,
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        filter: str | None = None,  # noqa: A002 (the contract's name)
    ) -> Plan | FittedPlan | str:
        """Return the plan if it needs no fit, else the result of `fit`, cached per client.

        `filter` replaces the plan's after the fit: the parameters are those of the rows that pass the plan's filter.
        A mixture is not fitted: raises `NotFitted` if the plan needs it.
        """
        check_source(dataset)
        check_plan(plan)
        if isinstance(dataset, Mixture):
            return self._for_mixture(dataset, plan, filter)
        if filter is not None:
            known = self.fitted(dataset, plan)
            return (self._stored(known) if isinstance(known, str) else known).with_filter(filter)
        if not isinstance(plan, Plan):
            return plan
        self._check_split(dataset, plan)
        if plan.training is not None:
            return self.fitted(dataset, plan.training, plan.filter)
        plan = self._resolved(dataset, plan)
        if not plan.needs_fit:
            return plan
        key = (dataset, plan.to_json())
        if key not in self._fits:
            self._fits[key] = self.fit(dataset, plan)
        return self._fits[key]

    def _for_mixture(
        self, mixture: Mixture, plan: Plan | FittedPlan | str, filters: str | None
    ) -> Plan | FittedPlan | str:
        """Return the plan of a mixture's sources that have none."""
        if filters is not None:
            if any(source.plan is not None for source in mixture.sources):
                raise ValueError("filter replaces that of one plan: pass sources with their plans filtered instead")
            plan = (self._stored(plan) if isinstance(plan, str) else plan).with_filter(filters)
        dataset = mixture.common_dataset
        if dataset is None or not isinstance(plan, Plan):
            return plan
        check_fitted(dataset, plan)
        return self._resolved(dataset, plan)

    def _sources(self, dataset: str | Mixture) -> str | list[Json]:
        """Return a mixture as its sources' JSON, with the names of the columns that their plans select."""
        if isinstance(dataset, str):
            return dataset
        for source in dataset.sources:
            check_fitted(source.dataset, source.plan)
        if not any(isinstance(source.plan, Plan) and source.plan.has_selectors for source in dataset.sources):
            return dataset.to_list()
        plans = [
            self._resolved(source.dataset, source.plan) if isinstance(source.plan, Plan) else source.plan
            for source in dataset.sources
        ]
        return dataset.with_plans(plans).to_list()

    def _stored(self, plan_id: str) -> FittedPlan:
        """Return the stored plan of an id."""

        def show(connection: Connection) -> FittedPlan:
            for found in connection.act("show", {"plan_id": plan_id}):
                return FittedPlan(plan_id, Plan.from_dict(cast(Json, found["plan"])))
            raise StreamError(f"the server returned no plan {plan_id}")

        return self._on_any(show)

    def _check_split(self, dataset: str, plan: Plan) -> None:
        """Warn if the plan is a side of a split by a column of times."""
        columns = [column for column in split_columns(plan.filter) if (dataset, column) not in self._splits]
        if not columns:
            return
        self._splits.update((dataset, column) for column in columns)
        schema = cast(Any, self.schema(dataset))
        for column in columns:
            kind = schema.field(column).type if column in schema.names else None
            if kind is not None and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                warnings.warn(
                    f"the split by {column!r} ({kind}) draws each time at random, so validation rows are between "
                    "training rows, and training sees the future: to validate on the last rows, divide them at a time, "
                    f'plan.split(by_time="{column}", train_until="2025-10-01")',
                    stacklevel=4,
                )

    def _resolved(self, dataset: str, plan: Plan) -> Plan:
        """Return the plan with the names of its selected columns."""
        if not plan.has_selectors:
            return plan
        if (dataset, plan) not in self._resolutions:
            self._resolutions[dataset, plan] = plan.resolve(self.schema(dataset))
        return self._resolutions[dataset, plan]
