"""The base class of ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from .message import Json, PlanMessage

ITEMS_SHOWN = 4
CHARACTERS_SHOWN = 60


class Op(PlanMessage):
    """One step of a chain."""

    name: ClassVar[str]
    """The op's field in plan.proto."""
    indexes: ClassVar[bool] = False
    """Whether the result is an index, whose default dtype is an integer."""
    learned: ClassVar[tuple[str, ...]] = ()
    """The fields that a fit sets."""
    fit_triggers: ClassVar[tuple[str, ...]] = ()
    """The fields that require a fit where they are set."""
    bounds: ClassVar[tuple[str, ...]] = ()
    """The fields that indices do not exceed."""
    fills: ClassVar[tuple[str, ...]] = ()
    """The fields whose number is one more index in a chain of indices."""
    limits: ClassVar[dict[str, tuple[float, float]]] = {}
    """The least and the most of fields that have bounds."""

    @property
    def keeps_indexes(self) -> bool:
        """Whether the op maps indices to indices."""
        is_chosen = bool(self.fills) and (not self.one_of or self.fill is not None)
        return is_chosen and (self.fill is None or float(self.fill).is_integer())

    @property
    def fill(self) -> float | None:
        """The value that takes the place of null, or pads."""
        given = (cast("float | None", self.field(name)) for name in self.fills)
        return next((value for value in given if value is not None), None)

    @property
    def learns(self) -> bool:
        """Whether the op has parameters to learn."""
        if any(self.is_set(name) for name in self.fit_triggers):
            return True
        return bool(self.learned) and not any(self.is_set(name) for name in self.learned)

    def __str__(self) -> str:
        """Return the op as a call, with long lists shortened."""
        fields = ", ".join(f"{name}={shortened(value)}" for name, value in self.to_dict().items())
        return f"{self.name}({fields})"


def ending_in_indexes(chain: Sequence[Op]) -> Sequence[Op]:
    """Return the last op of a chain that produces indices, and the ops after it that keep them; empty if none do."""
    for index in range(len(chain) - 1, -1, -1):
        if chain[index].indexes:
            return chain[index:]
        if not chain[index].keeps_indexes:
            break
    return ()


def shortened(value: object) -> str:
    """Return a value's text; for a long list, only that of the first items."""
    if isinstance(value, dict):
        return ", ".join(shortened(one) for one in cast(Json, value).values())
    if isinstance(value, list):
        items = cast("list[object]", value)
        shown = ", ".join(map(shortened, items[:ITEMS_SHOWN]))
        more = f", … {len(items) - ITEMS_SHOWN:,} more" if len(items) > ITEMS_SHOWN else ""
        return f"[{shown}{more}]"
    if isinstance(value, str) and len(value) > CHARACTERS_SHOWN:
        return f"{value[:CHARACTERS_SHOWN]!r}…"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
