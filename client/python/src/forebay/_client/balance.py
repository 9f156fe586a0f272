"""The classes of a balanced epoch, as the field `balance` of a request."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

import numpy as np

from forebay._plan.arguments import column_name, number
from forebay._plan.names import check_keywords
from forebay.errors import InvalidRequest

INT64_MAX = 2**63 - 1

Balance = str | Mapping[str, Any]
"""A column, or ``{"by": column, "weights": {value: weight}}``."""


def normalized_balance(balance: Balance | None) -> dict[str, Any] | None:
    """Return the JSON of a request's balance; None if there is none."""
    if balance is None:
        return None
    given = {"by": balance} if isinstance(balance, str) else balance
    if not isinstance(cast(object, given), Mapping):
        raise TypeError(f'balance must be a column or {{"by": column, "weights": {{value: weight}}}}, not {balance!r}')
    check_keywords("balance", given, ("by", "weights"))
    weights = given.get("weights") or {}
    listed = weights if isinstance(weights, (list, tuple)) else [_weight(*each) for each in _items(weights)]
    return {"by": column_name("balance: by", given.get("by")), "weights": list(cast("list[Any]", listed))}


def _items(weights: object) -> list[tuple[object, object]]:
    if not isinstance(weights, Mapping):
        raise TypeError(f"balance: weights must be a mapping from values to weights, not {weights!r}")
    return list(cast("Mapping[object, object]", weights).items())


def normalized_sample_weight(expression: object) -> str | None:
    """Return the expression of the weights of rows; None if there is none."""
    if expression is None:
        return None
    if not isinstance(expression, str):
        raise TypeError(f"sample_weight must be a string with an SQL expression or None, not {expression!r}")
    return expression.strip() or None


def _weight(value: object, weight: object) -> dict[str, Any]:
    found = number(f"balance: the weight of {value!r}", weight)
    if not math.isfinite(found) or found < 0:
        raise InvalidRequest(f"balance: the weight of {value!r} must be a finite number, at least 0, not {weight!r}")
    return {"key": _key(value), "weight": found}


def _key(value: object) -> dict[str, Any]:
    if value is None:
        return {"null": True}
    if isinstance(value, (bool, np.bool_)):
        return {"boolean": bool(value)}
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, Decimal):
        return {"decimal": f"{value:f}"}
    try:
        whole = operator.index(cast(int, value))
    except TypeError:
        raise TypeError(
            f"balance: weights must be of whole numbers, text, True and False, Decimal or None, not {value!r}; times "
            "and dates are the number of their units"
        ) from None
    return {"unsigned" if whole > INT64_MAX else "integer": whole}
