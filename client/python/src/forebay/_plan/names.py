"""Names: checks of those that a caller spells, keywords and choices from a list, and columns in SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches


def nearest(name: str, allowed: Collection[str]) -> str | None:
    """Return the allowed name that is spelled most like this one; None if none is near."""
    plain = {one.lower().replace("_", ""): one for one in allowed}
    found = get_close_matches(name.lower().replace("_", ""), plain, n=1)
    return plain[found[0]] if found else None


def suggestion(name: str, allowed: Collection[str]) -> str:
    """Return ``did you mean …?`` with the nearest of the allowed names, or all of them if none is near."""
    near = nearest(name, allowed)
    return f"choose one of {', '.join(allowed)}" if near is None else f"did you mean {near}?"


def check_keywords(function: str, given: Mapping[str, object], allowed: Collection[str]) -> None:
    """Raise TypeError for a keyword that the function does not have, with the nearest one that it has."""
    for name in given:
        if name not in allowed:
            raise TypeError(f"{function} has no argument {name!r}: {suggestion(name, allowed)}")


def quoted(column: str) -> str:
    """Return a column's name in an expression."""
    return '"' + column.replace('"', '""') + '"'
