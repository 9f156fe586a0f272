"""Splits of a dataset by a hash of a column: SQL filters that are stable, disjoint, and together every row."""

from __future__ import annotations

import re

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


# A condition of `split_filters`: its column and seed name the split, and either comparison is a side of it.
CONDITION = re.compile(rf'hash64\("(?P<column>(?:[^"]|"")+)", (?P<seed>\d+)\) % {SHARES} (?:<|>=) \d+')


def split_columns(filter: str) -> list[str]:  # noqa: A002 (the contract's name)
    """Return the columns of the splits in a filter."""
    return [column.replace('""', '"') for column, _ in CONDITION.findall(filter)]


def lost_split(before: str, after: str) -> str | None:
    """Return the column of a split that one filter has, and the filter in its place does not; None if there is none.

    Either side of the split is one: a validation plan takes the place of its training plan.
    """
    kept = set(CONDITION.findall(after))
    lost = [column for column, seed in CONDITION.findall(before) if (column, seed) not in kept]
    return lost[0].replace('""', '"') if lost else None


def both(one: str, other: str) -> str:
    """Return the filter of the rows that pass both; an empty filter passes every row."""
    return f"({one}) AND {other}" if one.strip() else other
