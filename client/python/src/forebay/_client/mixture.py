"""Mixtures: several datasets in one stream, each with its share of the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, SupportsFloat, cast

from forebay._plan.fitted import FittedPlan
from forebay._plan.names import check_keywords
from forebay._plan.plan import Plan
from forebay.errors import InvalidRequest, NotFitted

from .options import integer, switch

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class MixtureSource:
    """A dataset of a mixture, with a `weight` or, in every source of the mixture, `rows_per_batch`."""

    dataset: str
    weight: float | None = None
    """Share of the rows, relative to the other weights."""
    rows_per_batch: int | None = None
    """Rows of each batch; those of all sources add up to the batch size."""
    repeat: bool = False
    """Begin again after the last row, in another order if shuffled, instead of ending the epoch."""
    plan: Plan | FittedPlan | str | None = None
    """Plan of this source, with the same outputs as the others; None: the plan of the stream."""

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.dataset), str) or not self.dataset:
            raise TypeError(f"dataset must be the name of a dataset on the server, not {self.dataset!r}")
        where = f"source {self.dataset!r}"
        if (self.weight is None) == (self.rows_per_batch is None):
            raise InvalidRequest(f"{where}: pass either weight or rows_per_batch")
        if self.weight is not None:
            object.__setattr__(self, "weight", _weight(where, self.weight))
        if self.rows_per_batch is not None:
            rows = integer(f"{where}: rows_per_batch", self.rows_per_batch, least=1)
            object.__setattr__(self, "rows_per_batch", rows)
        object.__setattr__(self, "repeat", switch(f"{where}: repeat", self.repeat))
        if self.plan is not None and not isinstance(cast(object, self.plan), (Plan, FittedPlan, str)):
            raise TypeError(f"{where}: plan must be a Plan, a FittedPlan or the id of one, not {self.plan!r}")

    def to_dict(self) -> Json:
        """Return the source as JSON of the server."""
        source: Json = {"dataset": self.dataset}
        if self.weight is not None:
            source["weight"] = self.weight
        if self.rows_per_batch is not None:
            source["rows_per_batch"] = self.rows_per_batch
        if self.repeat:
            source["repeat"] = True
        if isinstance(self.plan, str):
            source["plan_id"] = self.plan
        elif self.plan is not None:
            source["plan"] = (self.plan.plan if isinstance(self.plan, FittedPlan) else self.plan).to_dict()
        return source


@dataclass(frozen=True, repr=False)
class Mixture:
    """Several datasets in one stream; made by `mix`, and passed instead of the name of a dataset."""

    sources: tuple[MixtureSource, ...]

    def __repr__(self) -> str:
        names = [source.dataset for source in self.sources]
        if len(set(names)) < len(names):
            return f"mix([{', '.join(map(repr, self.sources))}])"
        return f"mix({{{', '.join(f'{source.dataset!r}: {_short(source)}' for source in self.sources)}}})"

    def to_list(self) -> list[Json]:
        """Return the sources as JSON of the server."""
        return [source.to_dict() for source in self.sources]

    @property
    def common_dataset(self) -> str | None:
        """The first dataset that is read under the plan of the stream."""
        return next((source.dataset for source in self.sources if source.plan is None), None)

    def with_plans(self, plans: Sequence[Plan | FittedPlan | str | None]) -> Mixture:
        """Return the mixture with other plans of its sources."""
        return Mixture(tuple(replace(source, plan=plan) for source, plan in zip(self.sources, plans, strict=True)))


def mix(sources: Mapping[str, float | Mapping[str, Any]] | Sequence[MixtureSource | Mapping[str, Any]]) -> Mixture:
    """Mix datasets: ``mix({"a": 0.7, "b": 0.3})`` has 70 % of its rows from a, and 30 % from b.

    For every n, each source has its share of the first n rows of an epoch to within a row, over all ranks together.
    Each source has a separate order. An epoch ends when the first source has no rows left; with ``repeat``, a
    source begins again instead.

    A value is a weight, or a mapping of the fields of `MixtureSource`: ``{"weight": 0.3, "repeat": True}``. A list of
    `MixtureSource`, or of such mappings with a ``dataset``, may name a dataset twice, with different plans::

        mix([{"dataset": "a", "weight": 1, "plan": clicks}, {"dataset": "a", "weight": 1, "plan": views}])

    Pass the result as the dataset of `Client.stream`, `Client.explain`, `Client.replay` and `FlightDataset`.
    """
    if isinstance(sources, Mapping):
        given: list[MixtureSource | Mapping[str, Any]] = [
            {**value, "dataset": name} if isinstance(value, Mapping) else {"dataset": name, "weight": value}
            for name, value in sources.items()
        ]
    elif isinstance(sources, str) or not isinstance(cast(object, sources), Sequence):
        raise TypeError(f'mix expects a mapping such as {{"a": 0.7, "b": 0.3}}, or a list of sources, not {sources!r}')
    else:
        given = list(sources)
    if not given:
        raise InvalidRequest("mix expects at least one source")
    return Mixture(tuple(_source(one) for one in given))


def check_fitted(dataset: str, plan: Plan | FittedPlan | str | None) -> None:
    """Raise `NotFitted` for a plan that must first learn from the data."""
    if isinstance(plan, Plan) and (plan.needs_fit or plan.training is not None):
        raise NotFitted(
            f"the plan must first learn from the data, and a mixture is not fitted as a whole: fit it on one dataset, "
            f"client.fit({dataset!r}, plan), and pass the result"
        )


def _source(given: MixtureSource | Mapping[str, Any]) -> MixtureSource:
    if isinstance(given, MixtureSource):
        return given
    if not isinstance(cast(object, given), Mapping):
        raise TypeError(f"a source of a mixture must be a MixtureSource or a mapping, not {given!r}")
    check_keywords("mix", given, [field.name for field in fields(MixtureSource)])
    if "dataset" not in given:
        raise TypeError("a source of a mixture lacks its dataset")
    return MixtureSource(**given)


def _weight(where: str, weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, SupportsFloat):
        raise TypeError(f"{where}: weight must be a number, not {weight!r}")
    number = float(weight)
    if not math.isfinite(number) or number <= 0:
        raise InvalidRequest(f"{where}: weight must be a finite number above 0, not {number}")
    return number


def _short(source: MixtureSource) -> str:
    """Return a source without its dataset: its weight alone, or a mapping."""
    shown = {field.name: getattr(source, field.name) for field in fields(source) if field.name != "dataset"}
    shown = {name: value for name, value in shown.items() if value is not None and value is not False}
    return repr(shown["weight"]) if shown.keys() == {"weight"} else repr(shown)
