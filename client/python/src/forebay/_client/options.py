"""Options of a stream and their defaults, each defined once.

The defaults are those of forebay_proto::defaults; a test compares the two.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, TypedDict, cast

import numpy as np

from forebay._plan.arguments import UINT64_MAX
from forebay._plan.names import check_keywords, suggestion
from forebay.errors import InvalidRequest

from .balance import Balance, normalized_balance, normalized_sample_weight
from .buckets import LengthBuckets, normalized_buckets
from .window import Window, normalized_window

if TYPE_CHECKING:
    from .credentials import Credentials

Remainder = Literal["keep", "drop", "pad"]
REMAINDERS: tuple[Remainder, ...] = ("keep", "drop", "pad")

BATCH_SIZE = 1024
WORLD_SIZE = 1
WINDOW_ROWS = 16384
LANES_MIN = 16
LANES_A_RANK = 8
LANES_MAX = 65_536


def default_lanes(world_size: int, order_version: int = 0) -> int:
    """Return the default number of lanes in a version of the order, 0 for the latest.

    It is the smallest multiple of the world size that is at least `LANES_MIN` and, from version 3 on, gives every rank
    `LANES_A_RANK`, as far as `LANES_MAX` allows.
    """
    of_rank = 1 if order_version in {1, 2} else min(LANES_A_RANK, LANES_MAX // world_size)
    return max(-(-LANES_MIN // world_size), of_rank) * world_size


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of an epoch's rows, apart from the epoch's number."""

    lanes: int | None = None
    """Lanes of a shuffled epoch; None: the server's default, see `default_lanes`."""
    remainder: Remainder = "keep"
    """Rows that do not fill a batch on every rank: kept, dropped, or padded by repeating rows."""
    seed: int = 0
    shuffle: bool = False
    window_rows: int | None = None
    """Rows permuted together within a lane; None: the server's default, `WINDOW_ROWS`."""
    sample: float = 1.0
    """Fraction of the dataset's rows to read, more than 0 and at most 1; the same rows for every plan and order."""
    sample_seed: int = 0
    """Seed of the sample; a smaller sample of the same seed is part of a larger one."""
    balance: Balance | None = None
    """Column of which each epoch draws as many rows of every value, or ``{"by": …, "weights": {value: weight}}``."""
    sample_weight: str | None = None
    """SQL expression of the weights of rows, in proportion to which each epoch draws as many rows as there are."""
    window: Window | None = None
    """Windows that the rows become: ``{"by": series, "order": time, "length": past rows, "horizon": future rows,
    "stride": rows, "incomplete": "drop" or "pad"}``; batches, positions and shares count windows."""
    bucket_by_length: LengthBuckets | None = None
    """Buckets of rows of similar length, of one of which are all batches of a step: ``{"column": name, "boundaries":
    [lengths]}``, or ``{"column": name, "max_tokens": number}`` for batches of so many tokens, padding included."""


@dataclass(frozen=True, kw_only=True)
class StreamOptions(Order):
    """Options of a stream: which batches of which epoch a request names, apart from dataset, plan and rank.

    Numbers are normalized to int. Raises `forebay.InvalidRequest`, a ValueError, for a value that no server accepts.
    """

    batch_size: int = BATCH_SIZE
    """Rows per batch and rank."""
    world_size: int = WORLD_SIZE
    """Ranks that share the epoch."""
    epoch: int = 0
    with_row_ids: bool = False
    """Add the column ``__row_id``: the row's index in the snapshot, in file order."""
    snapshot: str | None = None
    """Digest of the files to read; the request fails if they have changed. None: the current files."""

    def __post_init__(self) -> None:
        remainder = str(self.remainder).lower()
        if remainder not in REMAINDERS:
            raise InvalidRequest(f"remainder must not be {self.remainder!r}: {suggestion(remainder, REMAINDERS)}")
        if self.snapshot is not None and not isinstance(cast(object, self.snapshot), str):
            raise TypeError(f"snapshot must be text or None, not {self.snapshot!r}")
        normalized = {
            "batch_size": integer("batch_size", self.batch_size, least=1),
            "world_size": integer("world_size", self.world_size, least=1),
            "epoch": integer("epoch", self.epoch),
            "seed": integer("seed", self.seed),
            "shuffle": switch("shuffle", self.shuffle),
            "with_row_ids": switch("with_row_ids", self.with_row_ids),
            "remainder": remainder,
            "lanes": None if self.lanes is None else integer("lanes", self.lanes),
            "window_rows": None if self.window_rows is None else integer("window_rows", self.window_rows, least=1),
            **normalized_sample(self.sample, self.sample_seed),
            "balance": normalized_balance(self.balance),
            "sample_weight": normalized_sample_weight(self.sample_weight),
            "window": normalized_window(self.window),
            "bucket_by_length": normalized_buckets(self.bucket_by_length),
        }
        for name, value in normalized.items():
            object.__setattr__(self, name, value)

    @property
    def order(self) -> Order:
        """The part of the options that a cursor keeps."""
        return Order(
            lanes=self.lanes,
            remainder=self.remainder,
            seed=self.seed,
            shuffle=self.shuffle,
            window_rows=self.window_rows,
            sample=self.sample,
            sample_seed=self.sample_seed,
            balance=self.balance,
            sample_weight=self.sample_weight,
            window=self.window,
            bucket_by_length=self.bucket_by_length,
        )

    @property
    def has_whole_batches(self) -> bool:
        """Whether all batches have `batch_size` rows."""
        of_tokens = self.bucket_by_length is not None and "max_tokens" in self.bucket_by_length
        return self.remainder != "keep" and not of_tokens

    def refuse_buckets(self, function: str) -> None:
        """Raise for buckets of length, where batches become rows of one table."""
        if self.bucket_by_length is not None:
            raise InvalidRequest(f"bucket_by_length: {function} returns rows, of any length: leave it out")

    def keywords(self) -> StreamKeywords:
        """Return the options as keyword arguments."""
        return cast("StreamKeywords", asdict(self))

    def to_request(self, dataset: str | list[dict[str, Any]]) -> dict[str, object]:
        """Return the JSON of a StreamRequest without its plan; a list is the sources of a mixture."""
        source = {"dataset": dataset} if isinstance(dataset, str) else {"sources": dataset}
        request: dict[str, object] = {
            **source,
            "batch_size": self.batch_size,
            "world_size": self.world_size,
            "epoch": self.epoch,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "remainder": self.remainder.upper(),
            "with_row_ids": self.with_row_ids,
        }
        if self.sample != 1:
            request |= {"sample": self.sample, "sample_seed": self.sample_seed}
        optional = {
            "window_rows": self.window_rows,
            "lanes": self.lanes,
            "snapshot": self.snapshot,
            "balance": self.balance,
            "sample_weight": self.sample_weight,
            "window": self.window,
            "bucket_by_length": self.bucket_by_length,
        }
        request.update({name: value for name, value in optional.items() if value is not None})
        return request


class DatasetKeywords(TypedDict, total=False):
    """The keywords of `StreamOptions` that a dataset passes on; the others are its own to set."""

    batch_size: int
    epoch: int
    seed: int
    shuffle: bool
    window_rows: int | None
    lanes: int | None
    remainder: Remainder
    sample: float
    sample_seed: int
    balance: Balance | None
    sample_weight: str | None
    window: Window | None
    bucket_by_length: LengthBuckets | None
    with_row_ids: bool


class SourceKeywords(DatasetKeywords, total=False):
    """The same, and what else a dataset of any number of ranks takes."""

    filter: str | None
    retry_seconds: float
    credentials: Credentials | None


class RankKeywords(SourceKeywords, total=False):
    """The same, and the rank of a dataset that reads one."""

    rank: int | None
    world_size: int | None


class StreamKeywords(DatasetKeywords, total=False):
    """The keywords of `StreamOptions`, as the type of ``**options``."""

    world_size: int
    snapshot: str | None


def normalized_sample(sample: object, seed: object) -> dict[str, float | int]:
    """Return a sample and its seed as numbers; the seed is 0 if every row is read."""
    if isinstance(sample, bool) or not isinstance(sample, SupportsFloat):
        raise TypeError(f"sample must be a number, not {sample!r}")
    fraction = float(sample)
    if not 0 < fraction <= 1:
        raise InvalidRequest(f"sample must be more than 0 and at most 1, not {fraction}")
    number = integer("sample_seed", seed)
    return {"sample": fraction, "sample_seed": 0 if fraction == 1 else number}


def integer(name: str, value: object, *, least: int = 0) -> int:
    """Return a whole number of at least `least` as int; raise for anything else."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    try:
        number = operator.index(cast(int, value))
    except TypeError:
        if not isinstance(value, float) or not value.is_integer():
            raise TypeError(f"{name} must be a whole number, not {value!r}") from None
        number = int(value)
    if number < least:
        raise InvalidRequest(f"{name} must be at least {least}, not {number}")
    if number > UINT64_MAX:
        raise InvalidRequest(f"{name} must be at most {UINT64_MAX}, not {number}")
    return number


def switch(name: str, value: object) -> bool:
    """Return True or False, also for 1 and 0; raise for anything else."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(cast(int, value))
    raise TypeError(f"{name} must be True or False, not {value!r}")


def check_rank(rank: object, world_size: object) -> tuple[int, int]:
    """Return rank and world size as int; raise unless this is one of the ranks."""
    ranks, number = integer("world_size", world_size, least=1), integer("rank", rank, least=-1)
    if not 0 <= number < ranks:
        raise InvalidRequest(f"rank {number} is not one of the {ranks} ranks, 0 to {ranks - 1}")
    return number, ranks


def given_rank(rank: object, world_size: object) -> tuple[int, int] | None:
    """Return rank and world size as `check_rank`; None if neither is given. Raise if only one is."""
    if (rank is None) != (world_size is None):
        raise ValueError("pass both rank and world_size, or omit both")
    return None if rank is None else check_rank(rank, world_size)


def check_stream_keywords(function: str, given: Mapping[str, object], others: Collection[str] = ()) -> None:
    """Raise TypeError for a keyword other than those of `StreamOptions` and `others`."""
    check_keywords(function, given, [*others, *StreamKeywords.__annotations__])
