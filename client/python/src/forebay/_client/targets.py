"""Checks of the targets of a client: servers, a dataset and a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from forebay._plan.fitted import FittedPlan
from forebay._plan.plan import Plan

from .mixture import Mixture


def check_urls(url: str | Sequence[str]) -> list[str]:
    """Return the URLs of the replicas; raise ValueError unless each looks like one."""
    urls = [url] if isinstance(url, str) or not isinstance(cast(object, url), Sequence) else list(url)
    if not urls:
        raise ValueError("the url is empty: pass a server's URL, such as grpc://127.0.0.1:8815")
    for one in cast("list[object]", urls):
        if not isinstance(one, str) or "://" not in one:
            raise ValueError(f"{one!r} is not a server URL; expected one such as grpc://127.0.0.1:8815")
    return cast("list[str]", urls)


def check_targets(url: str | Sequence[str], dataset: object, plan: object) -> None:
    """Raise unless these can be the replicas, the dataset or mixture, and the plan of a stream."""
    check_urls(url)
    check_source(dataset)
    check_plan(plan)


def check_dataset(name: object) -> None:
    """Raise TypeError unless this can be a dataset's name."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"dataset must be the name of a dataset on the server, not {name!r}")


def check_source(dataset: object) -> None:
    """Raise TypeError unless this can be a dataset's name, or is a mixture."""
    if not isinstance(dataset, Mixture):
        check_dataset(dataset)


def check_columns(columns: object) -> list[str]:
    """Return the names of columns; raise unless there is at least one."""
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise TypeError(f'columns must be a list of names, such as ["a", "b"], not {columns!r}')
    for name in cast("Sequence[object]", columns):
        if not isinstance(name, str):
            raise TypeError(f"columns must be names, not {name!r}")
    if not columns:
        raise ValueError("columns must name at least one column; None stands for all")
    return list(cast("Sequence[str]", columns))


def check_plan(plan: object) -> None:
    """Raise TypeError unless this is a plan, a fitted one or the id of one."""
    if not isinstance(plan, (Plan, FittedPlan, str)):
        raise TypeError(f"plan must be a Plan, a FittedPlan or the id of one, not {plan!r}")
