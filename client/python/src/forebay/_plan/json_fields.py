"""Values of a plan's JSON: each function returns one, or says where it is another than the format allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

Fields = Mapping[str, object]


def fields(where: str, item: object, *allowed: str) -> dict[str, object]:
    """Return an object's fields under their snake_case names, all of them allowed ones."""
    if not isinstance(item, Mapping):
        raise TypeError(f"{where} must be an object, not {item!r}")
    found = {_snake(name): value for name, value in cast(Fields, item).items()}
    for name in found:
        if name not in allowed:
            listed = ", ".join(allowed) or "none"
            raise ValueError(f"{where} has no field {name!r}; its fields are: {listed}")
    return found


def set_fields(where: str, item: object, *allowed: str) -> dict[str, object]:
    """Return the fields that are set: JSON writes an absent one as null."""
    return {name: value for name, value in fields(where, item, *allowed).items() if value is not None}


def _snake(name: str) -> str:
    """Return a camelCase name, which proto3's JSON reads as well, in snake_case."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), name)


def items(where: str, value: object) -> Sequence[object]:
    """Return a list; null is an empty one."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{where} must be a list, not {value!r}")
    return cast(Sequence[object], value)


def text(where: str, value: object) -> str:
    """Return text."""
    if not isinstance(value, str):
        raise TypeError(f"{where} must be text, not {value!r}")
    return value


def texts(where: str, value: object) -> tuple[str, ...]:
    """Return a list of text."""
    return tuple(text(where, item) for item in items(where, value))


def number(where: str, value: object) -> float:
    """Return a number, which proto3's JSON may write as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"{where} must hold numbers, not {value!r}")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{where} must hold numbers, not {value!r}") from None


def whole(where: str, value: object) -> int:
    """Return a whole number, which proto3's JSON may write as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{where} must hold whole numbers, not {value!r}")
    return value


def flag(where: str, value: object) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise TypeError(f"{where} must be true or false, not {value!r}")
    return value


def enum_name(where: str, value: object, known: Sequence[str]) -> str:
    """Return the name of an enum's value in upper case."""
    chosen = text(where, value)
    if chosen.upper() not in known:
        raise ValueError(f"{where} is {chosen!r}; it is one of {', '.join(known)}")
    return chosen.upper()


# By the kinds of plan.proto's fields.
READERS: dict[str, Callable[[str, object], object]] = {
    "bool": flag,
    "double": number,
    "int32": whole,
    "int64": whole,
    "string": text,
    "uint32": whole,
    "uint64": whole,
}
