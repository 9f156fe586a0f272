"""Splits of a dataset by a hash of a column: SQL filters that are stable, disjoint, and together every row."""

from __future__ import annotations

from .op import column_name, number, whole_number

ROW_ID = "__row_id"
# The finest share of a split: a millionth.
SHARES = 1_000_000


def split_filters(by: str | None, share: float, seed: int) -> tuple[str, str]:
    """Return the filters of the rows outside and inside the share."""
    column = column_name("split: by", ROW_ID if by is None else by)
    taken = round(number("split: val", share) * SHARES)
    if not 0 < taken < SHARES:
        raise ValueError(f"split: val must be a share between 0 and 1, in steps of {1 / SHARES:g}, not {share!r}")
    quoted = column.replace('"', '""')
    bucket = f'hash64("{quoted}", {whole_number("split: seed", seed)}) % {SHARES}'
    return f"{bucket} >= {taken}", f"{bucket} < {taken}"


def both(one: str, other: str) -> str:
    """Return the filter of the rows that pass both; an empty filter passes every row."""
    return f"({one}) AND {other}" if one.strip() else other
