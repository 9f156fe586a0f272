"""Splits of a dataset, by a hash of a column or by time: SQL filters that are stable and disjoint."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TypeAlias, cast

import numpy as np

from .arguments import column_name, number, whole_number
from .names import quoted

ROW_ID = "__row_id"
# The finest share of a split: a millionth.
SHARES = 1_000_000

Moment: TypeAlias = "str | date | datetime | np.datetime64 | int"
"""A time as ISO 8601 text or an object, or the whole number that a column of numbers has for it."""

Gap: TypeAlias = "str | timedelta | np.timedelta64 | int"
"""A length of time: ``"7 days"`` or an object, or a whole number for a column of numbers."""

GAP = re.compile(r"\s*(?P<count>\d+)\s*(?P<unit>second|minute|hour|day|week)s?\s*")


def split_filters(by: str | None, share: float, seed: int) -> tuple[str, str]:
    """Return the filters of the rows outside and inside the share."""
    column = column_name("split: by", ROW_ID if by is None else by)
    taken = round(number("split: val", share) * SHARES)
    if not 0 < taken < SHARES:
        raise ValueError(f"split: val must be a share between 0 and 1, in steps of {1 / SHARES:g}, not {share!r}")
    bucket = f"hash64({quoted(column)}, {whole_number('split: seed', seed)}) % {SHARES}"
    return f"{bucket} >= {taken}", f"{bucket} < {taken}"


def time_filters(
    by_time: str, train_until: Moment | None, val_until: Moment | None, gap: Gap | None
) -> tuple[str, str]:
    """Return the filters of the rows before `train_until`, and of those from there, after the gap, to `val_until`."""
    column = quoted(column_name("split: by_time", by_time))
    if train_until is None:
        raise TypeError('split: by_time requires train_until, the first time that is not trained on: "2025-10-01"')
    train_end = moment("train_until", train_until)
    val_start = after(train_end, gap)
    training, validation = f"{column} < {literal(train_end)}", f"{column} >= {literal(val_start)}"
    if val_until is None:
        return training, validation
    val_end = moment("val_until", val_until)
    try:
        is_empty = val_end <= val_start  # type: ignore[operator]
    except TypeError as error:
        raise TypeError(
            f"split: val_until {val_until!r} and train_until {train_until!r} must both be numbers, or times, "
            "with offsets from UTC or without"
        ) from error
    if is_empty:
        raise ValueError(
            f"split: val_until {val_until!r} leaves no time for validation, which starts at {literal(val_start)}"
        )
    return training, f"{validation} AND {column} < {literal(val_end)}"


def moment(name: str, given: Moment) -> datetime | int:
    """Return a time, or the number of a column of numbers."""
    if isinstance(given, str):
        try:
            # Python 3.10 does not read the Z.
            return datetime.fromisoformat(re.sub("[Zz]$", "+00:00", given.strip()))
        except ValueError:
            raise ValueError(
                f'split: {name} must be a time such as "2025-10-01" or "2025-10-01T12:30:00+02:00", not {given!r}'
            ) from None
    if isinstance(given, np.datetime64):
        exact = given.astype("datetime64[us]")
        # For years beyond 9999, `item` returns a number.
        found: object = exact.item()
        if exact != given or not isinstance(found, datetime):
            raise ValueError(f"split: {name} must be a time in whole microseconds, up to year 9999, not {given!r}")
        return found
    if isinstance(given, datetime):
        return given
    if isinstance(given, date):
        return datetime(given.year, given.month, given.day)
    if isinstance(given, bool) or not isinstance(cast(object, given), (int, np.integer)):
        raise TypeError(f"split: {name} must be a time, not {given!r}")
    return int(given)


def after(start: datetime | int, gap: Gap | None) -> datetime | int:
    """Return the time a gap after another."""
    if gap is None:
        return start
    if isinstance(start, int):
        return start + whole_number("split: gap (of times that are numbers)", gap)
    length = duration(gap)
    if length is None or length < timedelta(0):
        raise ValueError(f'split: gap must be a length of time such as "7 days" or a timedelta, not {gap!r}')
    return start + length


def duration(gap: Gap) -> timedelta | None:
    """Return a length of time, or None for anything else."""
    if isinstance(gap, str):
        found = GAP.fullmatch(gap)
        return found and timedelta(**{f"{found['unit']}s": int(found["count"])})
    length: object = gap.astype("timedelta64[us]").item() if isinstance(gap, np.timedelta64) else gap
    return length if isinstance(length, timedelta) else None


def literal(time: datetime | int) -> str:
    """Return a time in SQL; the start of a day as its date, which columns of dates have, too.

    A number is in parentheses, which tell the condition from one that a person wrote.
    """
    if isinstance(time, int):
        return f"({time})"
    text = time.isoformat()
    return f"'{text.removesuffix('T00:00:00')}'"


QUOTED = r'"(?P<column>(?:[^"]|"")+)"'
# A condition of `split_filters`: its column and seed name the split, and either comparison is a side of it.
HASHED = re.compile(rf"hash64\({QUOTED}, (?P<seed>\d+)\) % {SHARES} (?:<|>=) \d+")
# A condition of `time_filters`.
TIMED = re.compile(rf"{QUOTED} (?:<|>=) (?:'\d{{4}}-\d\d-\d\d(?:T[^']*)?'|\(-?\d+\))")


def split_columns(filter: str) -> list[str]:  # noqa: A002 (the contract's name)
    """Return the columns of the splits by a hash in a filter."""
    return [unquoted(column) for column, _ in HASHED.findall(filter)]


def lost_split(before: str, after: str) -> str | None:
    """Return the column of a split that one filter has, and the filter in its place does not; None if there is none.

    Either side of the split is one: a validation plan takes the place of its training plan.
    """
    kept = set(splits(after))
    lost = [split for split in splits(before) if split not in kept]
    return unquoted(lost[0][0]) if lost else None


def splits(filter: str) -> list[tuple[str, str | None]]:  # noqa: A002 (the contract's name)
    """Return the quoted column of each split in a filter, and the seed of one by a hash."""
    return [*HASHED.findall(filter), *((column, None) for column in TIMED.findall(filter))]


def unquoted(column: str) -> str:
    """Return the name that SQL has between quotes."""
    return column.replace('""', '"')


def both(one: str, other: str) -> str:
    """Return the filter of the rows that pass both; an empty filter passes every row."""
    return f"({one}) AND {other}" if one.strip() else other
