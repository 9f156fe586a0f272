"""`FlightDataset`: one rank's batches as a torch IterableDataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed
import torch.utils.data

from forebay._client.client import Client, connect
from forebay._client.credentials import Credentials
from forebay._client.cursor import Cursor, resolved
from forebay._client.explain import Explain
from forebay._client.header import StreamInfo
from forebay._client.mixture import Mixture
from forebay._client.options import DatasetKeywords, RankKeywords, StreamOptions, given_rank, integer
from forebay._client.replay import Replay
from forebay._client.retry import RETRY_SECONDS
from forebay._client.ring import SLOTS_BESIDES_PREFETCH
from forebay._client.targets import check_targets
from forebay._plan.arguments import in_range
from forebay._plan.fitted import FittedPlan
from forebay._plan.names import check_keywords
from forebay._plan.plan import Plan

from .batches import FlightBatches
from .device_copy import resolve_device
from .epoch_checks import EpochChecks
from .epochs import Epochs
from .iteration import Iteration, LoadedState, Totals
from .loop_report import loop_report
from .loops import Loops
from .reading import NextEpoch, OpenStream
from .sharding import environment_rank, refuse_sampler, refuse_second_sharding
from .stacking import refuse_stacking
from .tensors import TensorBatch
from .upcoming import Upcoming
from .worker_state import Ack, Mark, WorkerAck, WorkerState

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The keywords of a dataset, for the error that names the nearest one.
KEYWORDS = ("epochs", "prefetch", "device", *RankKeywords.__annotations__)


class FlightDataset(torch.utils.data.IterableDataset[TensorBatch]):
    """One rank's batches of an epoch as dicts of tensors, read ahead in a background thread.

    Iterate it directly or through ``DataLoader(data, batch_size=None)``, as it yields whole batches. ``len(data)`` is
    the exact number of steps of this rank's whole epoch, also after a resume.

    A new iterator after a finished epoch is the next epoch, with a new order if shuffled: ``for epoch, batches in
    data.epochs(3)``, or a loop around ``for batch in data``. A new iterator within an epoch starts the same epoch
    again; ``next(iter(data))`` within a loop, a sample for a log, leaves the loop's epoch and position as they are.
    `set_epoch` chooses the epoch of the next iterator. An epoch is finished when the loop has the last batch of
    the rank with the fewest steps, or reaches its own end.

    With ``epochs=n`` one iterator yields n epochs, from `epoch` on, without a pause between them, and ``len(data)``
    counts the steps of all. `state_dict` names the epoch, and a loaded state is followed by what is left of the n.

    The next epoch is opened while the loop consumes the last batches of the current one: within ``epochs=n`` or
    ``data.epochs(n)``, with `set_epoch` in order, and once a loop has run two epochs in order. Both streams then hold
    memory of the server; an unused one is closed after 30 s. ``stats()["boundary_wait_seconds"]`` is the longest
    wait for a first batch after another epoch.

    `options` are fields of `forebay.StreamOptions`: batch_size, shuffle, seed, epoch, remainder, with_row_ids,
    window_rows and lanes. `url` may be a list of replicas: if a server becomes unreachable within an epoch, the dataset
    waits for it or continues on another one, for up to `retry_seconds`. `forebay.connect` describes `credentials`.

    Rank and world size default to those of torch.distributed if it is initialized, else to RANK and WORLD_SIZE of the
    environment, else to 0 of 1; they are determined on first use. The dataset shards itself. Lightning accepts this;
    with Accelerate use `FlightLoader`, or iterate the dataset directly.

    DistributedDataParallel hangs if one rank has a step more than others. Without a `remainder` every row is read once,
    and `forebay.UnevenRanks` is raised before the first step if that means unequal steps: choose ``remainder="pad"``
    (equal steps; some rows repeat, as DistributedSampler has it), ``"drop"`` (equal steps without the last rows) or
    ``"keep"`` (every row once; the loop joins uneven ranks). `forebay.errors.EmptyEpoch` is warned if no row passes the
    filter, and `forebay.errors.KeptRows` if a resumed run of an older order of rows has few row groups, so that a rank
    reads mostly the same rows in every epoch.

    ``filter`` replaces the plan's filter after the fit: ``FlightDataset(…, fitted, filter="day > 20")`` streams other
    rows with the parameters that `fitted` learned, for validation.

    ``dataset`` is the name of a dataset, or a mixture of several: ``fb.mix({"a": 0.7, "b": 0.3})``. A plan that learns
    is fitted on one of them first.

    Columns: FLOAT32, FLOAT16, BFLOAT16, FLOAT64, INT32, INT64 and UINT8 outputs are tensors of that dtype;
    ``__row_id`` is int64; an AS_STORED column stays a `pyarrow.Array` (text, dates, lists, anything with nulls).

    ``device="cuda"`` (or ``"cuda:1"``) copies batches to that GPU ahead of the loop: the background thread copies each
    into pinned memory and starts its copy to the GPU, one for all columns, on a separate CUDA stream. A tensor that is
    kept keeps the GPU memory of its batch. GPU memory holds `prefetch` batches in addition to the one in use. CUDA
    graphs may be captured meanwhile. By default batches stay in this process's memory.

    With ``DataLoader(num_workers=n)`` worker 0 reads the whole stream and the others nothing, so rows are not lost or
    repeated and the order is kept; the prefetch thread makes workers unnecessary. Epochs advance, and `set_epoch` and
    `load_state_dict` take effect, in persistent workers (``persistent_workers=True``) too.
    Forked workers make their own connections. Only streams must not be open during a fork, as gRPC does not support it:
    then the worker raises `forebay.errors.ForkedInUse`, and ``multiprocessing_context="forkserver"`` works.
    `state_dict` counts the batches that the loop consumed, which with workers only `FlightLoader` and torchdata's
    ``StatefulDataLoader`` can observe: use their state_dict then.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        dataset: str | Mixture,
        plan: Plan | FittedPlan | str,
        *,
        filter: str | None = None,  # noqa: A002 (the contract's name)
        rank: int | None = None,
        world_size: int | None = None,
        epochs: int | None = None,
        prefetch: int = 2,
        device: str | torch.device | None = None,
        retry_seconds: float = RETRY_SECONDS,
        credentials: Credentials | None = None,
        **options: Unpack[DatasetKeywords],
    ) -> None:
        super().__init__()
        if "snapshot" in options:
            raise TypeError("a FlightDataset has no option snapshot; load a state, or use Client.stream")
        check_keywords("FlightDataset", options, KEYWORDS)
        check_targets(url, dataset, plan)
        if filter is not None and not isinstance(cast(object, filter), str):
            raise TypeError(f"filter must be a string with an SQL expression, not {filter!r}")
        self._url = url
        self._dataset = dataset
        self._plan = plan
        self._filter = filter
        # The world size may not be known yet: `_options` fills it in.
        self._given = StreamOptions(**options)
        self._checks = EpochChecks(options)
        self._upcoming = Upcoming(self._given.epoch, epochs)
        self._prefetch = integer("prefetch", prefetch, least=1)
        self._device = resolve_device(device)
        self._retry_seconds = in_range("retry_seconds", retry_seconds, 0.0)
        self._credentials = credentials
        self._given_rank = given_rank(rank, world_size)
        self._loaded: LoadedState | None = None
        # The last state loaded into the epoch, also after it is consumed: where the run's steps begin.
        self._resumed: Cursor | None = None
        # The iterations since an epoch or a state was set: one of them has this dataset's position.
        self._loops: Loops[Iteration] = Loops()
        # All iterations whose iterators exist.
        self._iterations: list[Iteration] = []
        self._totals = Totals()
        self._lanes = 1
        self._worker_state = WorkerState()
        self._generation = 0
        self._client: Client | None = None
        # By epoch, rank and world size.
        self._lengths: dict[tuple[int, int, int], StreamInfo] = {}
        # Version of the order of the loaded state, or of the epochs before: later epochs keep it.
        self._order_version = 0

    def __repr__(self) -> str:
        epochs = self._upcoming.epochs
        options = {**asdict(self._given), "epoch": self.epoch, "epochs": epochs and len(epochs), "world_size": None}
        shown = [f"{name}={value!r}" for name, value in options.items() if value is not None and value is not False]
        return f"FlightDataset({self._url!r}, {self._dataset!r}, {', '.join(shown)}, {self._plan!r})"

    @property
    def batch_size(self) -> int:
        """Rows per batch and rank."""
        return self._given.batch_size

    @property
    def epoch(self) -> int:
        """The epoch of the running loop; between loops, that of the next one."""
        self._sync()
        current = self._loops.current
        if current is None:
            return self._given.epoch
        return current.start.epoch + min(current.finished, current.consumed.over)

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration; that of the running loop until it has finished it."""
        self._sync()
        return self._following()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which starts at its first batch.

        Does nothing if that iteration is of this epoch anyway, so that a loaded state stays in effect.
        """
        epoch = integer("epoch", epoch)
        following = self.next_epoch
        self._upcoming.choose(epoch, following)
        if epoch != following:
            self._select(epoch)
            self._publish(None)

    def epochs(self, count: int, loader: Iterable[TensorBatch] | None = None) -> Epochs[TensorBatch]:
        """Iterate over the epochs that are left of `count` in all: pairs of an epoch's number and its batches.

        ``for epoch, batches in data.epochs(3)`` runs epochs 0, 1 and 2, the same as ``range(3)``. After
        `load_state_dict` it first runs the rest of the interrupted epoch, and then those up to `count`. Leaving an
        inner loop early ends its epoch. `loader` is a DataLoader over this dataset that yields the batches instead.
        """
        self._upcoming.expect(count, in_workers=loader is not None)
        return Epochs(self, count, self if loader is None else loader, lambda: self.generation)

    def __len__(self) -> int:
        """Return the exact number of steps of this rank in the whole epoch, or in all of `epochs`."""
        refuse_sampler()
        return self.info().rank_steps * len(self._upcoming.epochs or (0,))

    def info(self) -> StreamInfo:
        """Return the description of the whole epoch: its files, its rows, and this rank's share of them."""
        epoch = self.epoch
        # The rank may be unknown at first, as torch.distributed may be initialized later.
        key = epoch, *self._rank()
        if key not in self._lengths:
            start = replace(self._epoch_start(), epoch=epoch)
            with self.opener()(start) as stream:
                self.note(start, stream.info)
        return self._lengths[key]

    def __iter__(self) -> Iterator[TensorBatch]:
        """Start the epoch, or the next one if it is finished, or resume from a loaded state.

        The first batch consumes a loaded state: if the server does not respond, or the iterator is dropped unused, the
        next iteration starts at the same position.
        """
        refuse_second_sharding(self._rank()[1])
        refuse_stacking("FlightDataset")
        worker = torch.utils.data.get_worker_info()
        self._sync(begins=True)
        if worker is not None and worker.id != 0:
            return iter(())
        self._worker_state.in_worker = worker is not None
        self._advance()
        self._drop_consumed()
        loaded = self._loaded
        start = self._epoch_start() if loaded is None else loaded.cursor
        upcoming, in_worker = self._upcoming, worker is not None
        follows = upcoming.begin(start.epoch)
        count = upcoming.count_from(start.epoch)
        iteration = Iteration(start, loaded, epochs=count, follows=follows, in_worker=in_worker)
        resume_ack = None
        if loaded is not None and loaded.generation:
            resume_ack = self._ack(Mark(loaded.generation))
        batches = FlightBatches(
            self,
            iteration,
            self._prefetch,
            self._device,
            resume_ack,
            opens_following=upcoming.opens_after(start.epoch, follows=follows, in_worker=in_worker),
            following=upcoming.take(start.epoch),
        )
        if worker is None:
            # A worker opens with its first batch: torch does not propagate errors raised here in a persistent worker.
            batches.open()
        iteration.belongs_to(batches)
        self._iterations.append(iteration)
        self._loops.begin(iteration)
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that the loop consumed: small, and the same on every rank.

        It is a `forebay.Cursor` as a dict, which `Client.stream` accepts too. At the end of an epoch it is the start of
        the next one. Exceptions in `next` and `close` do not move it.
        """
        if self._worker_state.in_worker and torch.utils.data.get_worker_info() is None:
            raise RuntimeError(
                "state_dict counts the batches that this process read, but a DataLoader's worker read them; "
                "use num_workers=0 (a thread reads batches ahead anyway), or the state_dict of forebay.torch."
                "FlightLoader(data, num_workers=…) or of torchdata's StatefulDataLoader"
            )
        current = self._loops.current
        return (self.start() if current is None else current.cursor).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the next iteration, after the last batch that the saving loop consumed.

        Seed, shuffling, lanes, window and remainder are the state's; batch size and world size are this dataset's.
        Raises `forebay.CursorRefused`, a ValueError, if this many ranks cannot share the rest of the epoch. Changed
        files or plans are reported when the iteration starts.
        """
        cursor = Cursor.of(state)
        cursor.check(world_size=self._rank()[1], batch_size=self.batch_size)
        cursor.check_rows(self._given)
        self._claim_worker_state()
        self._load(cursor, self._publish(cursor))

    def replay(self, *, step: int, rank: int | None = None, epoch: int | None = None) -> Replay:
        """Return the source of each row of one batch; by default of this rank and of the latest epoch read.

        Steps are counted as in the headers of the loop, also after a resume with another batch size.
        """
        client = self._fitted_client()
        rank = self._rank()[0] if rank is None else rank
        self._sync()
        options = replace(self._options(), epoch=self._given.epoch if epoch is None else epoch)
        current = self._loops.current
        begun = self._resumed if current is None else current.start
        cursor = begun if begun is not None and begun.epoch == options.epoch else None
        return client.replay(self._dataset, self._plan, step=step, rank=rank, cursor=cursor, **options.keywords())

    def explain(
        self,
        *,
        rows: int = 0,
        row_bytes: int = 0,
        storage_bytes_per_second: float = 0.0,
        wire_bytes_per_second: float = 0.0,
    ) -> Explain:
        """Estimate the cost of an epoch; see `Client.explain`."""
        return self._fitted_client().explain(
            self._dataset,
            self._plan,
            rows=rows,
            row_bytes=row_bytes,
            storage_bytes_per_second=storage_bytes_per_second,
            wire_bytes_per_second=wire_bytes_per_second,
            **self._options().keywords(),
        )

    def stats(self) -> dict[str, float | str]:
        """Return statistics of this process's loops, and their bottleneck.

        ``batches``, ``rows``, ``bytes``; ``loop_seconds``, from the first `next` to the end of the last one;
        ``wait_seconds``, the part spent in `next`, of which ``first_wait_seconds`` for first batches;
        ``longest_wait_seconds``, the longest for any other batch; ``boundary_wait_seconds``, the longest for the first
        batch of an epoch that follows another, including the time to open it; the server's
        ``fetch_seconds``, ``queue_seconds`` (waiting for a CPU thread), ``decode_seconds``, ``transform_seconds``,
        ``udf_seconds`` (waiting for Python functions), ``assemble_seconds`` and
        ``send_wait_seconds``;
        ``bound_by``: "trainer", "wire", "storage", "functions" or "CPU", and ``because``, the figures that determine
        it;
        ``padding``: the fraction of padding among the elements of ragged outputs, if each list is padded to the longest
        of its batch;
        ``transport``: how the latest batch arrived, "ring" (memory shared with a server on this machine), "native" (the
        package's native module) or "flight".
        """
        totals = sum((iteration.consumed.totals for iteration in self._iterations), self._totals)
        return loop_report(totals, self._lanes)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the connection, as a worker opens its own, and keep torch.distributed's rank, which it cannot query."""
        refuse_second_sharding(self._rank()[1])
        rank = self._rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else None
        self._sync()
        self._drop_consumed()
        return {
            **self.__dict__,
            "_client": None,
            "_iterations": [],
            "_given_rank": rank or self._given_rank,
        }

    def _rank(self) -> tuple[int, int]:
        """Return this process's rank and the world size."""
        if self._given_rank is not None:
            return self._given_rank
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return environment_rank()

    def _epoch_start(self) -> Cursor:
        """Return the cursor at the start of the next iteration's epoch."""
        world_size = self._rank()[1]
        order = resolved(self._given.order, world_size, order_version=self._order_version)
        return Cursor(self.next_epoch, 0, world_size, order, order_version=self._order_version)

    def _following(self) -> int:
        """Return the epoch of the next iteration, as far as this process knows."""
        current = self._loops.current
        return self._given.epoch if current is None else current.next_epoch

    def _advance(self) -> None:
        """Choose the next epoch if the loop has finished this one; its iteration keeps the position until then."""
        following = self._following()
        if following != self._given.epoch:
            self._choose(following)

    def _select(self, epoch: int) -> None:
        self._loops.clear()
        self._choose(epoch)

    def _choose(self, epoch: int) -> None:
        self._loaded = None
        self._resumed = None
        self._upcoming.drop_unless(epoch)
        self._given = replace(self._given, epoch=epoch)

    def _load(self, cursor: Cursor, generation: int) -> None:
        self._lengths = {}
        self._order_version = cursor.order_version
        self._upcoming.drop_unless(None)
        # The snapshot stays with the cursor: the next epoch reads the files that are current then.
        self._given = replace(self._given, **asdict(cursor.order), epoch=cursor.epoch)
        self._loaded = LoadedState(cursor, generation)
        self._resumed = cursor
        self._loops.clear()

    def _drop_consumed(self) -> None:
        """Drop a consumed loaded state, and the iterations of deleted iterators."""
        loaded = self._loaded
        if loaded is not None and loaded.generation and loaded.generation <= self._worker_state.resumed:
            self._loaded = None
        elif (
            loaded is not None
            # A batch from a worker has not reached the loop yet; there only the worker state decides.
            and torch.utils.data.get_worker_info() is None
            and any(iteration.loaded is loaded and iteration.has_begun for iteration in self._iterations)
        ):
            self._worker_state.resumed = loaded.generation
            self._loaded = None
        ended = [iteration for iteration in self._iterations if iteration.is_dropped]
        if ended:
            totals = sum((iteration.consumed.totals for iteration in ended), self._totals)
            live = [iteration for iteration in self._iterations if iteration not in ended]
            self._totals, self._iterations = totals, live

    def _claim_worker_state(self) -> None:
        """Replace a worker state that another process created, as ranks must not share one."""
        if not self._worker_state.is_ours(in_worker=torch.utils.data.get_worker_info() is not None):
            self._worker_state, self._generation = WorkerState(), 0
            if self._loaded is not None:
                self._loaded = LoadedState(self._loaded.cursor, 0)

    def _publish(self, cursor: Cursor | None) -> int:
        """Publish the epoch, or the loaded cursor, to workers; return the generation.

        A state that torchdata loads into a worker is published too, for later workers, but only by worker 0, which
        reads the stream.
        """
        worker = torch.utils.data.get_worker_info()
        if worker is not None and (worker.id != 0 or cursor is None):
            return 0
        message = {"epoch": self._given.epoch} if cursor is None else {"cursor": cursor.to_dict()}
        self._generation = self._worker_state.write(message)
        return self._generation

    def _sync(self, *, begins: bool = False) -> None:
        """Apply what this process and its workers have published: a message, and the end of an epoch.

        A worker applies it when an iteration `begins`: until then its iteration keeps its epoch and its position.
        """
        if not begins and self._loops.current is not None and torch.utils.data.get_worker_info() is not None:
            return
        self._claim_worker_state()
        state = self._worker_state
        generation = state.generation
        if generation != self._generation:
            message = state.read()
            if "cursor" in message:
                self._load(Cursor.of(message["cursor"]), generation)
            else:
                self._select(int(message["epoch"]))
            self._generation = generation
        # The iterations of this process report the end of an epoch themselves.
        is_shared = state.in_worker or torch.utils.data.get_worker_info() is not None
        if is_shared and (state.next_epoch or 0) > self._following():
            self._select(cast(int, state.next_epoch))

    def _fitted_client(self) -> Client:
        """Return the client; fit the plan if necessary."""
        if self._client is None:
            self._client = connect(self._url, retry_seconds=self._retry_seconds, credentials=self._credentials)
            self._client.ring_slots = self._prefetch + SLOTS_BESIDES_PREFETCH
        self._plan = self._client.fitted(self._dataset, self._plan, self._filter)
        return self._client

    def _options(self) -> StreamOptions:
        return replace(self._given, epoch=self.epoch, world_size=self._rank()[1])

    # === What the iterators and the loader of this dataset call ===

    def start(self) -> Cursor:
        """Return where the next iteration starts: at the loaded state, or at the start of the epoch."""
        self._sync()
        self._drop_consumed()
        return self._epoch_start() if self._loaded is None else self._loaded.cursor

    @property
    def generation(self) -> int:
        """A number that setting the epoch and loading a state change."""
        return self._generation

    def opener(self) -> OpenStream:
        """Return what opens this rank's stream at a cursor, from any thread."""
        client = self._fitted_client()
        dataset, plan, rank = self._dataset, self._plan, self._rank()[0]
        keywords = self._options().keywords()
        return lambda cursor: client.stream(dataset, plan, rank=rank, cursor=cursor, **keywords)

    def note(self, start: Cursor, info: StreamInfo) -> None:
        """Note the description of an epoch, unless its ranks are refused."""
        self._checks.check(start, info, world_size=self._rank()[1], batch_size=self.batch_size)
        self._lengths = {(start.epoch, *self._rank()): info}
        self._lanes = max(1, info.lanes // max(1, start.world_size))
        self._order_version = info.order_version

    def end_ack(self, epoch: int) -> Ack:
        """Return what acknowledges that an epoch is finished."""
        return self._ack(Mark(self._generation, epoch + 1))

    def keep(self, following: NextEpoch) -> None:
        """Keep the next epoch for the next iterator."""
        self._upcoming.keep(following)

    def _ack(self, mark: Mark) -> Ack:
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return Ack(self._worker_state, mark)
        read: object = cast(Any, worker).dataset
        return WorkerAck(self._worker_state, mark, is_direct=read is self)
