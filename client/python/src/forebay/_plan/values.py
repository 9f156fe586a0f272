"""The messages that ops consist of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

import numpy as np

from . import json_fields
from .arguments import INT64_MAX
from .generated.messages import MESSAGES
from .message import Json, PlanMessage, json_number


@dataclass(frozen=True)
class VocabValues(PlanMessage):
    """A vocabulary's values in index order, all of one kind; decimals are strings of their digits."""

    kind: str
    items: tuple[str, ...] | tuple[int, ...] | tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[str] | Sequence[int] | Sequence[float] | Sequence[Decimal]) -> VocabValues:
        """Infer the kind from the values."""
        plain: list[object] = [v.item() if isinstance(v, np.generic) else v for v in values]
        if all(isinstance(v, str) for v in plain):
            return cls("strings", tuple(cast(list[str], plain)))
        if all(isinstance(v, int) and not isinstance(v, bool) for v in plain):
            integers = cast(list[int], plain)
            unsigned = any(v > INT64_MAX for v in integers) or any(
                type(v) is np.uint64 for v in cast(Sequence[object], values)
            )
            return cls("unsigned" if unsigned else "integers", tuple(integers))
        if all(isinstance(v, float) for v in plain):
            return cls("floats", tuple(cast(list[float], plain)))
        if all(isinstance(v, Decimal) for v in plain):
            decimals = cast(list[Decimal], plain)
            for value in decimals:
                if not value.is_finite():
                    raise ValueError(f"vocab(values=…): {value} is not a value of a decimal column")
            return cls("decimals", tuple(f"{value:f}" for value in decimals))
        raise TypeError("vocab(values=…): the values must be all text, all integers, all floats or all Decimal")

    def to_dict(self) -> Json:
        """Return the JSON of the message."""
        return {self.kind: [json_number(value) if isinstance(value, float) else value for value in self.items]}

    @classmethod
    def read(cls: type[VocabValues], where: str, body: object) -> VocabValues:
        """Read the JSON of the message; empty lists are ignored."""
        kinds = MESSAGES[cls.__name__]
        given = {kind: items for kind, items in json_fields.set_fields(where, body, *kinds).items() if items}
        if len(given) > 1:
            raise ValueError(f"{where} has {' and '.join(given)}; set only one of them")
        for kind, items in given.items():
            read = json_fields.READERS[kinds[kind][1].removeprefix("*")]
            return cls(
                kind, cast("tuple[str, ...]", tuple(read(where, item) for item in json_fields.items(where, items)))
            )
        return cls("strings", ())


@dataclass(frozen=True)
class FittedRows(PlanMessage):
    """The rows that a fit read: those of a snapshot that pass a filter and are in a sample."""

    snapshot: str = ""
    filter: str = ""
    sample_seed: int = 0
    sample_end: int = 0


@dataclass(frozen=True)
class Normalize(PlanMessage):
    """Means and deviations of the channels of an image."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Scales(PlanMessage):
    """What a fit has learned of each group of rows: a value becomes (x - shift) / divisor."""

    keys: tuple[VocabValues, ...] = ()
    """For each column that tells groups apart, its value in each group."""
    shifts: tuple[float, ...] = ()
    divisors: tuple[float, ...] = ()
