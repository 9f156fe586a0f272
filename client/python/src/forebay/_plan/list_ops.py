"""Ops on the shape of lists, and the join, one class per message of plan.proto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .op import Json, Op, json_number

Side = Literal["right", "left"]

# In the order of their numbers in plan.proto.
SIDES = ("right", "left")


def _side(side: str) -> Json:
    return {} if side == "RIGHT" else {"side": side}


@dataclass(frozen=True)
class FirstN(Op):
    """The first n elements of a list; n columns with a fill value."""

    name: ClassVar[str] = "first_n"
    n: int = 0
    value: float | None = None

    @property
    def keeps_indexes(self) -> bool:
        """A whole number is another index."""
        return self.value is None or self.value.is_integer()

    def to_dict(self) -> Json:
        """Return n, and the value if it is set."""
        return {"n": self.n} if self.value is None else {"n": self.n, "value": json_number(self.value)}


@dataclass(frozen=True)
class LastN(FirstN):
    """The last n elements of a list; n columns with a fill value, which pads at the start."""

    name: ClassVar[str] = "last_n"


@dataclass(frozen=True)
class Pad(Op):
    """A list becomes n columns: shorter ones are padded, longer ones truncated, both at one side."""

    name: ClassVar[str] = "pad"
    n: int = 0
    value: float = 0.0
    side: str = "RIGHT"

    @property
    def keeps_indexes(self) -> bool:
        """A whole number is another index."""
        return self.value.is_integer()

    def to_dict(self) -> Json:
        """Return n, the value, and the side if it is the left one."""
        return {"n": self.n, "value": json_number(self.value), **_side(self.side)}


@dataclass(frozen=True)
class AttentionMask(Op):
    """A list becomes n columns: 1 for each of its elements, and 0 where `Pad` pads."""

    name: ClassVar[str] = "attention_mask"
    indexes: ClassVar[bool] = True
    n: int = 0
    side: str = "RIGHT"

    def to_dict(self) -> Json:
        """Return n, and the side if it is the left one."""
        return {"n": self.n, **_side(self.side)}


@dataclass(frozen=True)
class Ngram(Op):
    """A list becomes the list of its n-grams, each hashed into buckets."""

    name: ClassVar[str] = "ngram"
    indexes: ClassVar[bool] = True
    n: int = 0
    buckets: int = 0
    seed: int = 0

    def to_dict(self) -> Json:
        """Return every field."""
        return {"n": self.n, "buckets": self.buckets, "seed": self.seed}


@dataclass(frozen=True)
class Bytes(Op):
    """A value of exactly n bytes becomes n columns, one per byte."""

    name: ClassVar[str] = "bytes"
    n: int = 0

    def to_dict(self) -> Json:
        """Return the field."""
        return {"n": self.n}


@dataclass(frozen=True)
class Lookup(Op):
    """The value becomes columns of the row of another dataset with that key, or null."""

    name: ClassVar[str] = "lookup"
    table: str = ""
    key: str = ""
    columns: tuple[str, ...] = ()
    snapshot: str = ""

    def to_dict(self) -> Json:
        """Return every field, and the snapshot if set."""
        chosen: Json = {"snapshot": self.snapshot} if self.snapshot else {}
        return {"table": self.table, "key": self.key, "columns": list(self.columns), **chosen}
