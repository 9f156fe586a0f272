"""Where an epoch resumes: the copy of the rule in forebay_proto::resume.

A run can resume at a position if every one of its ranks would have read the same number of the rows up to it. The world
size therefore divides the position and, shuffled, the lanes; in file order it is that of the run that saved the
position, as each rank reads its own span. The batch size does not matter. A test compares this module and the Rust one
with the same table of cases.
"""

from __future__ import annotations

import math

from forebay.errors import CursorRefused

from .options import LANES_MAX


def check_resume(position: int, *, saved: int, lanes: int | None, world_size: int) -> None:
    """Raise `CursorRefused` unless `world_size` ranks can resume at a position that `saved` ranks saved.

    `lanes` are those of the shuffled epoch; None: file order.
    """
    if saved < 1 or position % saved:
        raise CursorRefused(
            f"position {position} is not a multiple of the world size {saved} that it was saved with: load the state "
            "as it was saved, or restart the epoch"
        )
    if lanes is None:
        if position and world_size != saved:
            raise CursorRefused(
                f"the state was saved within an epoch in file order at world size {saved}, and this world size is "
                f"{world_size}: each rank reads its own span, so resume at world size {saved}, save at the end of an "
                "epoch, or use shuffle=True"
            )
        return
    if lanes % world_size == 0 and position % world_size == 0:
        return
    allowed = " or ".join(map(str, _nearest_divisors(math.gcd(lanes, position), world_size)))
    if lanes % world_size:
        raise CursorRefused(
            f"world size {world_size} does not divide the {lanes} lanes that the state was saved with: resume at a "
            f"world size that divides the lanes and position {position}, such as {allowed}"
        )
    raise CursorRefused(
        f"world size {world_size} does not divide position {position}, so its ranks would have read unequal numbers "
        f"of rows: resume at a world size that divides the {lanes} lanes and the position, such as {allowed}"
    )


def check_same_steps(position: int, *, saved: tuple[int, int], present: tuple[int, int]) -> None:
    """Raise `CursorRefused` unless a run of buckets has the world size and the batch size of the one that saved it.

    Both decide which rows its steps have had.
    """
    if position and saved != present:
        raise CursorRefused(
            f"the state was saved within an epoch of bucket_by_length at world size {saved[0]} and batch size "
            f"{saved[1]}, and these are {present[0]} and {present[1]}: resume at the saved ones, or save at the end of "
            "an epoch"
        )


def start_at(position: int, *, world_size: int, batch_size: int) -> dict[str, int]:
    """Return the fields of a request that starts at a position, which need not be a multiple of a step."""
    return {"start_position": position, "resumed_from": position % (world_size * batch_size)}


def _nearest_divisors(number: int, near: int) -> list[int]:
    """Return the nearest divisors of a number below and above another number."""
    largest = min(number, LANES_MAX)
    below = next((one for one in range(min(near, largest), 0, -1) if number % one == 0), None)
    above = next((one for one in range(near + 1, largest + 1) if number % one == 0), None)
    return [one for one in (below, above) if one is not None]
