"""The history of a plan: the series whose earlier rows `lag`, `diff` and `rolling` read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from .arguments import column_name, column_names
from .message import PlanMessage
from .names import check_keywords


@dataclass(frozen=True)
class History(PlanMessage):
    """The columns that tell the series of a dataset apart, and the one that orders the rows of a series."""

    required: ClassVar[tuple[str, ...]] = ("order",)
    by: tuple[str, ...] = ()
    order: str = ""

    def __str__(self) -> str:
        return f"{', '.join(self.by) or 'all rows'} in the order of {self.order}"


def history(given: History | Mapping[str, object] | None) -> History | None:
    """Return the history of ``{"by": column or columns, "order": column}``; None for None."""
    if given is None or isinstance(given, History):
        return given
    if not isinstance(cast(object, given), Mapping):
        raise TypeError(f'history must be {{"by": column, "order": column}}, not {given!r}')
    check_keywords("history", given, ("by", "order"))
    by = column_names("history: by", given.get("by") or ())
    return History(by, column_name("history: order", given.get("order")))
