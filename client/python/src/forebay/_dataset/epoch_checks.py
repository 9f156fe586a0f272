"""Checks of an epoch before its first step: ranks that differ in steps or keep their rows, an epoch without any.

Under DistributedDataParallel a rank waits for all others in every step: if one has fewer, the job hangs until the
timeout of its process group. Imports no framework.
"""

from __future__ import annotations

import warnings

from forebay._client.cursor import Cursor
from forebay._client.header import StreamInfo
from forebay._client.options import DatasetKeywords
from forebay.errors import EmptyEpoch, KeptRows, UnevenRanks

# Epochs of fewer rows are not worth rewriting their files.
KEPT_ROWS_MIN = 10_000
# What a person can do about unequal steps of an epoch, and of the rest of one.
CHOICES = (
    'choose remainder="pad" for equal steps in which some rows repeat, as DistributedSampler does, "drop" for equal '
    'steps without the last rows, or "keep" to read every row once in unequal steps',
    'the state has remainder "keep", so resume with another batch size or number of ranks, or pass remainder="keep" if '
    'the loop joins uneven ranks; a run that begins with "pad" or "drop" has equal steps at every world size',
)
# With so many row groups for each lane, epochs are about independent.
ROW_GROUPS_PER_LANE = 8


class EpochChecks:
    """Checks the epochs of a dataset with these options; warns once of each kind."""

    def __init__(self, options: DatasetKeywords) -> None:
        # A dataset with another remainder may resume a state that has "keep".
        self._takes_uneven = str(options.get("remainder", "")).lower() == "keep"
        self._warned: set[type[UserWarning]] = set()

    def check(self, start: Cursor, info: StreamInfo, *, world_size: int, batch_size: int) -> None:
        """Raise `UnevenRanks` or warn of an epoch, read from this cursor on, if necessary."""
        if info.steps == 0:
            self._warn(
                EmptyEpoch,
                "the epoch has no steps: no row passes the filter and the sample, or with remainder drop too few for a "
                "whole batch on every rank",
            )
        elif not self._takes_uneven and start.order.remainder == "keep":
            if start.order.bucket_by_length:
                begun = start.position // (world_size * batch_size)
                left, fewest, most = info.rows, max(0, info.common_steps - begun), max(0, info.steps - begun)
            else:
                left = max(0, info.rows - start.position)
                fewest, most = steps_of_ranks(left, world_size, batch_size)
            if fewest < most:
                choices = CHOICES[start.position > 0]
                raise UnevenRanks(
                    f"unequal steps of ranks: of {left} rows in batches of {batch_size}, some ranks have {most} steps "
                    f"and others {fewest}, and DistributedDataParallel hangs in step {most}: {choices}"
                )

        if info.passing_rows >= KEPT_ROWS_MIN and is_kept(info.rank_rows_kept, world_size):
            size = max(1, info.passing_rows // (ROW_GROUPS_PER_LANE * info.lanes))
            self._warn(
                KeptRows,
                f"each rank reads {info.rank_rows_kept:.0%} of its rows in the next epoch, too, where shuffling would "
                f"give {1 / world_size:.0%}: the files have few row groups for {info.lanes} lanes, and version "
                f"{info.order_version} of the order, under which this run began, shuffles them as wholes; begin "
                f"another run, which has a later version, or write row groups of at most {size:,} rows, such as by "
                f"pyarrow.parquet.write_table(…, row_group_size={size}) or forebay-prepare --row-group-rows {size}",
            )

    def _warn(self, category: type[UserWarning], text: str) -> None:
        if category not in self._warned:
            self._warned.add(category)
            warnings.warn(text, category, stacklevel=4)


def is_kept(rank_rows_kept: float, world_size: int) -> bool:
    """Whether the share of rows that ranks keep is closer to all than to that of independent epochs."""
    return world_size > 1 and rank_rows_kept > (1 + 1 / world_size) / 2


def steps_of_ranks(rows: int, world_size: int, batch_size: int) -> tuple[int, int]:
    """Return the steps of the ranks with the fewest and the most rows, if every row is kept."""
    fewest, most = rows // world_size, -(-rows // world_size)
    return -(-fewest // batch_size), -(-most // batch_size)
