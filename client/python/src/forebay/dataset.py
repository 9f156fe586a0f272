"""`FlightDataset`: one rank's batches as a torch IterableDataset."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
import torch.utils.data

from .batches import FlightBatches, Resume, Totals, Track
from .client import Client, connect
from .credentials import Credentials
from .cursor import Cursor, resolved
from .device_copy import DeviceCopy, resolve_device
from .explain import Explain
from .fitted import FittedPlan
from .header import StreamInfo
from .options import StreamOptions
from .plan import Plan
from .replay import Replay
from .retry import RETRY_SECONDS
from .sharding import refuse_second_sharding
from .stages import bound_by
from .stream import Stream
from .tensors import TensorBatch
from .worker_state import ResumeAck, WorkerResumeAck, WorkerState

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import DatasetKeywords


class FlightDataset(torch.utils.data.IterableDataset[TensorBatch]):
    """One rank's batches of an epoch as dicts of tensors, read ahead in a background thread.

    Use it as it is or through ``DataLoader(data, batch_size=None)``: batches come made. Call `set_epoch` before each
    epoch, for a new order. ``len(data)`` is the exact number of steps of this rank's whole epoch, also after a resume.

    `url` may be a list of replicas; a server that goes away in the middle of an epoch is replaced, or waited for, up
    to `retry_seconds`; `credentials` are for servers that ask who calls: see `forebay.connect` for both.

    Rank and world size are those given, else torch.distributed's where that is initialized, else RANK and WORLD_SIZE
    of the environment, else 0 of 1; looked up when they are first needed. The dataset shards itself: Lightning leaves
    that alone; with Accelerate use `FlightLoader`, or iterate the dataset itself.

    Columns: FLOAT32, FLOAT16, BFLOAT16, INT32, INT64 and UINT8 outputs are tensors of that dtype; ``__row_id`` is
    int64; an AS_STORED column stays the `pyarrow.Array` that it is (text, dates, lists, anything with nulls).

    ``device="cuda"`` (or ``"cuda:1"``) lands batches on that GPU ahead of the loop: the background thread copies each
    into pinned memory and starts its way to the GPU on a stream of its own; `prefetch` of them lie there beside the one
    in use. Without it they stay in this process's memory.

    With ``DataLoader(num_workers=n)`` worker 0 reads the whole stream and the others nothing, so that no row is lost
    or doubled and the order stays; the prefetch thread makes workers needless. `set_epoch` and `load_state_dict`
    reach workers that live on (``persistent_workers=True``) too. gRPC does not survive a fork: if this process has
    talked to a server before (``len(data)``, ``fit``), give the DataLoader ``multiprocessing_context="spawn"``, or an
    error says so. `state_dict` counts what the loop took, which with workers only torchdata's
    ``StatefulDataLoader`` can see: ask that for its state_dict then.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        dataset: str,
        plan: Plan | FittedPlan | str,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int = 2,
        device: str | torch.device | None = None,
        retry_seconds: float = RETRY_SECONDS,
        credentials: Credentials | None = None,
        **options: Unpack[DatasetKeywords],
    ) -> None:
        super().__init__()
        if "snapshot" in options:
            raise TypeError("a FlightDataset takes no snapshot; load a state, or use Client.stream")
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        if prefetch < 1:
            raise ValueError(f"prefetch must be at least 1, not {prefetch}")
        self._url = url
        self._dataset = dataset
        self._plan = plan
        # The world size may not be known yet: `_options` fills it in.
        self._given = StreamOptions(**options)
        self._prefetch = prefetch
        self._device = resolve_device(device)
        self._retry_seconds = retry_seconds
        self._credentials = credentials
        self._given_rank = None if rank is None or world_size is None else (rank, world_size)
        self._resume: Resume | None = None
        # The iteration whose place is this dataset's: the latest, unless another place was chosen since.
        self._track: Track | None = None
        self._tracks: list[tuple[weakref.ref[FlightBatches], Track]] = []
        self._totals = Totals()
        self._lanes = 1
        self._worker_state = WorkerState()
        self._heard = 0
        self._client: Client | None = None
        self._lengths: dict[int, StreamInfo] = {}

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return self._given.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; one other than the present begins at its first batch."""
        self._hear()
        if epoch != self.epoch:
            self._choose(epoch)
            self._tell(None)

    def __len__(self) -> int:
        """Return the exact number of steps of this rank in the whole epoch."""
        if self.epoch not in self._lengths:
            self._open(self._begin()).close()
        return self._lengths[self.epoch].rank_steps

    def __iter__(self) -> Iterator[TensorBatch]:
        """Start the epoch, or continue where a loaded state left it.

        A loaded state is used up by the first batch, not before: where the server does not answer, or the iterator is
        dropped unused, the next iteration begins at the same place.
        """
        refuse_second_sharding(self._rank()[1])
        worker = torch.utils.data.get_worker_info()
        self._hear()
        if worker is not None and worker.id != 0:
            return iter(())
        self._worker_state.in_worker = worker is not None
        self._settle()
        resume = self._resume
        track = Track(self._begin() if resume is None else resume.place, resume)
        resume_ack = None
        if resume is not None and resume.generation:
            resume_ack = (ResumeAck if worker is None else WorkerResumeAck)(self._worker_state, resume.generation)
        batches = FlightBatches(
            partial(self._open, track.start), track, self._prefetch, DeviceCopy(self._device), resume_ack
        )
        if worker is None:
            # A worker opens with its first batch: torch does not pass on what is raised here in one that lives on.
            batches.open()
        self._tracks.append((weakref.ref(batches), track))
        self._track = track
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the data behind the last batch that the loop took: small, and the same on every rank.

        It is a `forebay.Cursor` as a dict, which `Client.stream` takes too. At an epoch's end the place is the start
        of the next one. An exception in `next`, and `close`, leave the place where it is.
        """
        if self._worker_state.in_worker and torch.utils.data.get_worker_info() is None:
            raise RuntimeError(
                "state_dict counts the batches that this process took, and a DataLoader's worker took them; "
                "use num_workers=0 (batches are read ahead in a thread as it is), or torchdata's StatefulDataLoader, "
                "and ask that for its state_dict"
            )
        if self._track is not None:
            return self._track.place.to_dict()
        return (self._begin() if self._resume is None else self._resume.place).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, at the next iteration, behind the last batch that the saving loop took.

        Seed, shuffling, lanes, window and remainder are taken from the state. Batch size and world size are this
        dataset's own, and may be others where the state's position allows it: `forebay.CursorRefused`, a ValueError,
        says where it does not. That the files or the plan are others is seen when the iteration begins.
        """
        place = Cursor.of(state)
        place.check(world_size=self._rank()[1], batch_size=self._given.batch_size)
        self._own_worker_state()
        self._load(place, self._tell(place))

    def replay(self, *, step: int, rank: int | None = None, epoch: int | None = None) -> Replay:
        """Tell of one batch, of this rank and epoch unless others are given, where its rows lie."""
        client = self._connected()
        rank = self._rank()[0] if rank is None else rank
        options = self._options() if epoch is None else replace(self._options(), epoch=epoch)
        return client.replay(self._dataset, self._plan, step=step, rank=rank, **options.keywords())

    def explain(
        self,
        *,
        rows: int = 0,
        row_bytes: int = 0,
        storage_bytes_per_second: float = 0.0,
        wire_bytes_per_second: float = 0.0,
    ) -> Explain:
        """Tell what an epoch costs; see `Client.explain`."""
        return self._connected().explain(
            self._dataset,
            self._plan,
            rows=rows,
            row_bytes=row_bytes,
            storage_bytes_per_second=storage_bytes_per_second,
            wire_bytes_per_second=wire_bytes_per_second,
            **self._options().keywords(),
        )

    def stats(self) -> dict[str, float | str]:
        """Return what this process's loops took so far, and what held them up.

        ``batches``, ``rows``, ``bytes``; ``loop_seconds``, from the first `next` to the end of the last one;
        ``wait_seconds``, those of them in `next`, ``first_wait_seconds`` for the first batches among them; the server's
        ``fetch_seconds``, ``decode_seconds``, ``transform_seconds``, ``assemble_seconds`` and ``send_wait_seconds``;
        ``bound_by``: "trainer", "wire", "storage" or "CPU", and ``because``, the figures that say so.
        """
        totals = sum((track.taken.totals for _, track in self._tracks), self._totals)
        verdict, because = bound_by(
            totals.stages,
            loop_seconds=totals.loop_seconds - totals.first_wait_seconds,
            wait_seconds=totals.wait_seconds - totals.first_wait_seconds,
            lanes=self._lanes,
        )
        return {
            "batches": totals.batches,
            "rows": totals.rows,
            "bytes": totals.bytes,
            "loop_seconds": totals.loop_seconds,
            "wait_seconds": totals.wait_seconds,
            "first_wait_seconds": totals.first_wait_seconds,
            **{f"{name}_seconds": seconds for name, seconds in asdict(totals.stages).items()},
            "bound_by": verdict,
            "because": because,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind: a worker opens its own. Keep torch.distributed's rank, which it cannot ask."""
        refuse_second_sharding(self._rank()[1])
        rank = self._rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else None
        self._own_worker_state()
        self._settle()
        return {**self.__dict__, "_client": None, "_tracks": [], "_given_rank": rank or self._given_rank}

    def _rank(self) -> tuple[int, int]:
        """Return this process's rank and the world size."""
        if self._given_rank is not None:
            return self._given_rank
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        rank, world_size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        try:
            return int(rank), int(world_size)
        except ValueError:
            raise ValueError(f"RANK={rank!r} and WORLD_SIZE={world_size!r} must be whole numbers") from None

    def _begin(self) -> Cursor:
        """Return the start of the present epoch."""
        world_size = self._rank()[1]
        return Cursor(self.epoch, 0, world_size, resolved(self._given.order, world_size))

    def _choose(self, epoch: int) -> None:
        self._resume, self._track = None, None
        self._given = replace(self._given, epoch=epoch)

    def _load(self, place: Cursor, generation: int) -> None:
        self._lengths = {}
        # The snapshot stays with the place: the next epoch reads the files of its own time.
        self._given = replace(self._given, **asdict(place.order), epoch=place.epoch)
        self._resume, self._track = Resume(place, generation), None

    def _settle(self) -> None:
        """Forget a loaded state that is used up, and the iterators that are gone."""
        resume = self._resume
        if resume is not None and resume.generation and resume.generation <= self._worker_state.resumed:
            self._resume = None
        elif (
            resume is not None
            # What a worker hands over is not yet the loop's: there the worker_state alone says it.
            and torch.utils.data.get_worker_info() is None
            and any(track.resume is resume and track.has_begun for _, track in self._tracks)
        ):
            self._worker_state.resumed = resume.generation
            self._resume = None
        gone = [track for batches, track in self._tracks if batches() is None]
        if gone:
            totals = sum((track.taken.totals for track in gone), self._totals)
            live = [(batches, track) for batches, track in self._tracks if track not in gone]
            self._totals, self._tracks = totals, live

    def _own_worker_state(self) -> None:
        """Take a new worker_state where the present one is another process's, whose ranks would all write on it."""
        if not self._worker_state.is_ours(in_worker=torch.utils.data.get_worker_info() is not None):
            self._worker_state, self._heard = WorkerState(), 0
            if self._resume is not None:
                self._resume = Resume(self._resume.place, 0)

    def _tell(self, place: Cursor | None) -> int:
        """Let workers know the epoch, or the place that was loaded; returns the note's number.

        What torchdata loads into a worker is noted too, so that one that comes after it knows; by worker 0 alone, which
        reads the stream.
        """
        worker = torch.utils.data.get_worker_info()
        if worker is not None and (worker.id != 0 or place is None):
            return 0
        note = {"epoch": self.epoch} if place is None else {"place": place.to_dict()}
        self._heard = self._worker_state.write(note)
        return self._heard

    def _hear(self) -> None:
        """Follow what was noted, by this process or a worker, since this dataset last looked."""
        self._own_worker_state()
        generation = self._worker_state.generation
        if generation == self._heard:
            return
        note = self._worker_state.read()
        if "place" in note:
            self._load(Cursor.of(note["place"]), generation)
        elif int(note["epoch"]) != self.epoch:
            self._choose(int(note["epoch"]))
        self._heard = generation

    def _connected(self) -> Client:
        """Return the client, and have the plan fitted."""
        if self._client is None:
            self._client = connect(self._url, retry_seconds=self._retry_seconds, credentials=self._credentials)
        self._plan = self._client.fitted(self._dataset, self._plan)
        return self._client

    def _options(self) -> StreamOptions:
        return replace(self._given, world_size=self._rank()[1])

    def _open(self, place: Cursor) -> Stream:
        """Open this rank's stream from a place on."""
        client = self._connected()
        rank, world_size = self._rank()
        stream = client.stream(
            self._dataset,
            self._plan,
            rank=rank,
            cursor=place,
            **self._options().keywords(),
        )
        self._lengths = {place.epoch: stream.info}
        self._lanes = max(1, stream.info.lanes // max(1, world_size))
        return stream
