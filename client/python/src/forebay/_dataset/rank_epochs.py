"""Which epoch one rank reads next and from where: the state of `ArrayDataset` and of `forebay.tensorflow`.

Opens streams, and starts no threads. Imports no framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from forebay._client.client import Client, connect
from forebay._client.credentials import Credentials
from forebay._client.cursor import Cursor, resolved
from forebay._client.header import StreamInfo
from forebay._client.mixture import Mixture
from forebay._client.options import DatasetKeywords, RankKeywords, StreamOptions, check_rank, given_rank, integer
from forebay._client.retry import RETRY_SECONDS
from forebay._client.stream import Stream
from forebay._client.targets import check_targets
from forebay._plan.arguments import in_range
from forebay._plan.fitted import FittedPlan
from forebay._plan.names import check_keywords
from forebay._plan.plan import Plan
from forebay.errors import SchemaDrift

from .elements import Position
from .epoch_checks import EpochChecks
from .loops import Loops
from .sharding import environment_rank

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The keywords of a dataset, for the error that names the nearest one.
KEYWORDS = ("prefetch", *RankKeywords.__annotations__)


@dataclass(frozen=True)
class RankStreams:
    """One rank's streams of a dataset under a fitted plan. Pickled, it connects again."""

    client: Client
    name: str | Mixture
    plan: Plan | FittedPlan | str
    rank: int
    options: StreamOptions
    checks: EpochChecks

    def open(self, cursor: Cursor) -> Stream:
        """Open the stream at a cursor."""
        return self.client.stream(self.name, self.plan, rank=self.rank, cursor=cursor, **self.options.keywords())


def rank_streams(
    function: str,
    url: str | Sequence[str],
    name: str | Mixture,
    plan: Plan | FittedPlan | str,
    *,
    filter: str | None = None,  # noqa: A002 (the contract's name)
    rank: int | None = None,
    world_size: int | None = None,
    retry_seconds: float = RETRY_SECONDS,
    credentials: Credentials | None = None,
    **options: Unpack[DatasetKeywords],
) -> RankStreams:
    """Check the arguments of a dataset, connect, and fit the plan if necessary.

    Rank and world size default to RANK and WORLD_SIZE of the environment, else to 0 of 1. `function` is the name of the
    dataset's class in errors.
    """
    check_keywords(function, options, KEYWORDS)
    check_targets(url, name, plan)
    rank, world_size = given_rank(rank, world_size) or check_rank(*environment_rank())
    chosen = StreamOptions(**options, world_size=world_size)
    client = connect(url, retry_seconds=in_range("retry_seconds", retry_seconds, 0.0), credentials=credentials)
    fitted = client.fitted(name, plan, filter)
    return RankStreams(client, name, fitted, rank, chosen, EpochChecks(options))


class RankEpochs:
    """The epochs of a rank: the one that the next iteration reads, and the position in it."""

    def __init__(self, streams: RankStreams) -> None:
        self.generation = 0
        """A number that setting the epoch or loading a state changes."""
        self._open = streams.open
        self._given = streams.options
        self._checks = streams.checks
        # The version of the order of the first epoch or of a loaded state: later epochs have it, too.
        self._order_version = 0
        self._loaded: Cursor | None = None
        # The iterations since an epoch or a state was set: one of them has this dataset's position.
        self._loops: Loops[Position] = Loops()
        start = self._epoch_start()
        with self._open(start) as stream:
            self.schema = stream.schema
            self._info = self._noted(start, stream.info)

    @property
    def options(self) -> StreamOptions:
        """The options of the next stream, apart from its position."""
        return self._given

    @property
    def epoch(self) -> int:
        """The epoch of the running loop; between loops, that of the next one."""
        current = self._loops.current
        return self._given.epoch if current is None else current.epoch

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration; that of the running loop until it has finished it."""
        current = self._loops.current
        return self._given.epoch if current is None else current.next_epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, unless it is that one anyway."""
        epoch = integer("epoch", epoch)
        if epoch != self.next_epoch:
            self._select(epoch)
            self.generation += 1

    def state_dict(self, *, steps: int | None = None) -> dict[str, Any]:
        """Return the position after the last batch taken, or after `steps` batches of this iteration."""
        position = self._loops.current
        if steps is not None:
            steps = integer("steps", steps)
            taken = 0 if position is None else position.progress.taken
            if steps > taken:
                raise ValueError(
                    f"steps={steps}, but only {taken} batches of epoch {self._given.epoch} were taken: count the "
                    "steps of the current epoch only"
                )
        if position is not None:
            return position.cursor(steps).to_dict()
        return (self._epoch_start() if self._loaded is None else self._loaded).to_dict()

    @property
    def is_behind(self) -> bool:
        """Whether the loop of the latest iteration may be behind the batches taken."""
        current = self._loops.current
        return current is not None and not current.is_direct

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the next iteration, after the last batch that the saving loop had."""
        cursor, given = Cursor.of(state), self._given
        cursor.check(world_size=given.world_size, batch_size=given.batch_size)
        cursor.check_rows(given)
        self._select(cursor.epoch)
        self._given = replace(self._given, **asdict(cursor.order))
        self._order_version = cursor.order_version
        self._loaded = cursor
        self.generation += 1

    def info(self) -> StreamInfo:
        """Return the description of the whole epoch."""
        epoch = self.epoch
        if self._info[0] != epoch:
            start = replace(self._epoch_start(), epoch=epoch)
            with self._open(start) as stream:
                self._info = self._noted(start, stream.info)
        return self._info[1]

    def begin(self, *, is_direct: bool) -> tuple[Position, Stream]:
        """Open the stream of the epoch, of the next one if it is finished, or at a loaded state."""
        before = self._loops.current
        if before is not None and (before.is_done or before.taken):
            self._loaded = None
        self._given = replace(self._given, epoch=self.next_epoch)
        start = self._epoch_start() if self._loaded is None else self._loaded
        stream = self._open(start)
        try:
            if not stream.schema.equals(self.schema):
                raise SchemaDrift("the columns have changed since the dataset was made: make it again")
            self._noted(start, stream.info)
        except BaseException:
            stream.close()
            raise
        position = Position(stream.cursor(), stream.cursors(), is_direct=is_direct)
        self._loops.begin(position)
        return position, stream

    def _noted(self, start: Cursor, info: StreamInfo) -> tuple[int, StreamInfo]:
        """Return the description of an epoch with its number, and keep its order's version; check its ranks."""
        self._order_version = info.order_version
        self._checks.check(start, info, world_size=self._given.world_size, batch_size=self._given.batch_size)
        return start.epoch, info

    def _epoch_start(self) -> Cursor:
        """Return the cursor at the start of the epoch."""
        given, version = self._given, self._order_version
        order = resolved(given.order, given.world_size, order_version=version)
        return Cursor(given.epoch, 0, given.world_size, order, order_version=version)

    def _select(self, epoch: int) -> None:
        self._loaded = None
        self._loops.clear()
        self._given = replace(self._given, epoch=epoch)
