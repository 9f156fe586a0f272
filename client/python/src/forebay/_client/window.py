"""Windows over series, as the field `window` of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from forebay._plan.arguments import column_name, whole_number
from forebay._plan.names import check_keywords, suggestion
from forebay._plan.pack import LENGTH_MAX
from forebay.errors import InvalidRequest

STRIDE_MAX = 2**32 - 1
INCOMPLETE = ("drop", "pad")

Window = Mapping[str, Any]
"""``{"by": series, "order": time, "length": rows, "horizon": rows, "stride": rows, "incomplete": "drop" or "pad"}``."""


def normalized_window(window: Window | None) -> dict[str, Any] | None:
    """Return the JSON of a request's windows; None if there are none."""
    if window is None:
        return None
    if not isinstance(cast(object, window), Mapping):
        raise TypeError(f'window must be {{"by": …, "order": column, "length": rows}}, not {window!r}')
    check_keywords("window", window, ("by", "order", "length", "horizon", "stride", "incomplete"))
    by = window.get("by") or ()
    columns = [by] if isinstance(by, str) else by
    if not isinstance(columns, (list, tuple)):
        raise TypeError(f"window: by must be a column or a list of columns, not {by!r}")
    incomplete = str(window.get("incomplete", "drop")).lower()
    if incomplete not in INCOMPLETE:
        raise InvalidRequest(f"window: incomplete must not be {incomplete!r}: {suggestion(incomplete, INCOMPLETE)}")
    return {
        "by": [column_name("window: by", column) for column in cast("list[object]", columns)],
        "order": column_name("window: order", window.get("order")),
        "length": whole_number("window: length", window.get("length", 0), least=1, most=LENGTH_MAX),
        "horizon": whole_number("window: horizon", window.get("horizon", 0), least=0, most=LENGTH_MAX),
        "stride": whole_number("window: stride", window.get("stride", 1), least=1, most=STRIDE_MAX),
        "incomplete": incomplete.upper(),
    }
