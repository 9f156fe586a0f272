"""Messages of a plan as dataclasses, which are written to proto3 JSON and read from it by the table of their fields."""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar, cast

from . import json_fields
from .generated.messages import ENUMS, MESSAGES

Json = dict[str, object]

M = TypeVar("M", bound="PlanMessage")


class PlanMessage:
    """A message of plan.proto; its dataclass has the message's name and an attribute for each field."""

    required: ClassVar[tuple[str, ...]] = ()
    """The fields that are written even if they are zero."""
    one_of: ClassVar[tuple[str, ...]] = ()
    """The fields of which exactly one is set."""
    renamed: ClassVar[dict[str, str]] = {}
    """The attributes of fields whose names Python reserves."""

    classes: ClassVar[dict[str, type[PlanMessage]]] = {}
    """The classes by their names."""

    def __init_subclass__(cls) -> None:
        """Make the class known by its name."""
        PlanMessage.classes[cls.__name__] = cls

    def field(self, name: str) -> object:
        """Return the value of a field."""
        return getattr(self, self.renamed.get(name, name))

    def is_set(self, name: str) -> bool:
        """Whether a field has another value than that of an absent one."""
        value, kind = self.field(name), MESSAGES[type(self).__name__][name][1]
        if kind.startswith("?"):
            return value is not None
        return value != ENUMS[kind][0] if kind in ENUMS else bool(value)

    def to_dict(self) -> Json:
        """Return the fields that are set."""
        named = (name for name in MESSAGES[type(self).__name__] if name in self.required or self.is_set(name))
        return {name: _json(self.field(name)) for name in named}

    @classmethod
    def read(cls: type[M], where: str, body: object) -> M:
        """Return the message of JSON at a place of a plan."""
        kinds = MESSAGES[cls.__name__]
        given = json_fields.set_fields(where, body, *kinds)
        chosen = [name for name in cls.one_of if name in given]
        if cls.one_of and len(chosen) != 1:
            raise ValueError(f"{where} must set one of {', '.join(cls.one_of)}")
        return cls(
            **{
                cls.renamed.get(name, name): _value(f"{where}.{name}", kinds[name][1], value)
                for name, value in given.items()
            }
        )


def _value(where: str, kind: str, value: object) -> object:
    if kind.startswith("*"):
        return tuple(_value(where, kind[1:], item) for item in json_fields.items(where, value))
    kind = kind.removeprefix("?")
    if kind in ENUMS:
        return json_fields.enum_name(where, value, ENUMS[kind])
    reader = json_fields.READERS.get(kind)
    return reader(where, value) if reader else PlanMessage.classes[kind].read(where, value)


def _json(value: object) -> object:
    if isinstance(value, PlanMessage):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_json(item) for item in cast("tuple[object, ...]", value)]
    return json_number(value) if isinstance(value, float) else value


def json_number(value: float) -> float | str:
    """Return a number as proto3 JSON, in which NaN and infinities are strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
