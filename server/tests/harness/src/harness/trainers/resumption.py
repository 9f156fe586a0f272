"""A saved position in an epoch of 100 rows, and the rows before and after it."""

from __future__ import annotations

from typing import Any

import forebay as fb

ROWS = 100
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
PLACE = fb.Cursor(2, 40, 1).to_dict()
REST = list(range(40, ROWS))
WHOLE = list(range(ROWS))


def ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]
