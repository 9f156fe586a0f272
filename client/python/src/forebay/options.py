"""Options of a stream and their defaults, each defined once.

The defaults are those of forebay_proto::defaults; a test compares the two.
"""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass
from typing import Literal, TypedDict, cast

from .errors import InvalidRequest

Remainder = Literal["keep", "drop", "pad"]
REMAINDERS: tuple[Remainder, ...] = ("keep", "drop", "pad")

BATCH_SIZE = 1024
WORLD_SIZE = 1
WINDOW_ROWS = 16384
LANES_MIN = 16


def default_lanes(world_size: int) -> int:
    """Return the default number of lanes: the smallest multiple of the world size that is at least `LANES_MIN`."""
    return -(-LANES_MIN // world_size) * world_size


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
            raise InvalidRequest(f"remainder is {self.remainder!r}: choose one of {', '.join(REMAINDERS)}")
        normalized = {
            "batch_size": _integer("batch_size", self.batch_size, least=1),
            "world_size": _integer("world_size", self.world_size, least=1),
            "epoch": _integer("epoch", self.epoch),
            "seed": _integer("seed", self.seed),
            "shuffle": bool(self.shuffle),
            "with_row_ids": bool(self.with_row_ids),
            "remainder": remainder,
            "lanes": None if self.lanes is None else _integer("lanes", self.lanes),
            "window_rows": None if self.window_rows is None else _integer("window_rows", self.window_rows, least=1),
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
        )

    def keywords(self) -> StreamKeywords:
        """Return the options as keyword arguments."""
        return cast("StreamKeywords", asdict(self))

    def to_request(self, dataset: str) -> dict[str, object]:
        """Return the JSON of a StreamRequest without its plan."""
        request: dict[str, object] = {
            "dataset": dataset,
            "batch_size": self.batch_size,
            "world_size": self.world_size,
            "epoch": self.epoch,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "remainder": self.remainder.upper(),
            "with_row_ids": self.with_row_ids,
        }
        optional = {"window_rows": self.window_rows, "lanes": self.lanes, "snapshot": self.snapshot}
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
    with_row_ids: bool


class StreamKeywords(DatasetKeywords, total=False):
    """The keywords of `StreamOptions`, as the type of ``**options``."""

    world_size: int
    snapshot: str | None


def _integer(name: str, value: object, *, least: int = 0) -> int:
    try:
        number = operator.index(cast(int, value))
    except TypeError:
        if not isinstance(value, float) or not value.is_integer():
            raise TypeError(f"{name} must be a whole number, not {value!r}") from None
        number = int(value)
    if number < least:
        raise InvalidRequest(f"{name} must be at least {least}, not {number}")
    return number
