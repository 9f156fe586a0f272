"""An exception raised by a signal handler in `next` loses no batch, repeats none and ends no epoch.

The tests raise at each place where a handler can run in turn, and with real signals in between.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from torch.utils.data import DataLoader

import forebay as fb
from forebay._client.header import StreamInfo
from forebay._dataset.prefetch import Prefetch
from forebay.torch import FlightBatches, FlightDataset
from harness.daemon import poll
from harness.serving import Server
from harness.trainers.interrupts import Interrupted, Interruption, finalizes, first_of

ROWS = 100
IDS = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="int64")})
WHOLE = list(range(ROWS))
Serve = Callable[..., Server]


# Python swallows an exception raised in a finalizer, and warns.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Driven:
    """An iterator, and the place that it tells."""

    def __init__(self, iterator: Iterator[Any], place: Callable[[], tuple[int, int]]) -> None:
        self.iterator = iterator
        self.place = place


def streams(server: Server) -> Iterator[Driven]:
    with fb.connect(server.url) as client:
        while True:
            with client.stream("tiny", IDS, batch_size=1) as stream:

                def place(stream: fb.Stream = stream) -> tuple[int, int]:
                    return stream.cursor().epoch, stream.cursor().position

                yield Driven(stream, place)


def datasets(server: Server) -> Iterator[Driven]:
    while True:
        data = FlightDataset(server.url, "tiny", IDS, batch_size=1)

        def place(data: FlightDataset = data) -> tuple[int, int]:
            return data.state_dict()["epoch"], data.state_dict()["position"]

        yield Driven(iter(data), place)


MAKERS = {"Stream": streams, "FlightDataset": datasets}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("from_fresh", [False, True])
def test_interrupt_anywhere_in_next_loses_no_batch(server: Server, maker: str, from_fresh: bool):
    """Each location once: in a first `next`, and in one after a batch."""
    driven, taken, interrupts = None, [], 0
    made = MAKERS[maker](server)
    for at in itertools.count(1):
        if driven is None or from_fresh or len(taken) > ROWS - 4:
            driven, taken = next(made), []
            if not from_fresh:
                taken += first_of(driven.iterator)["id"].tolist()
        before = driven.place()
        assert before == (0, len(taken))
        interruption = Interruption(at)
        try:
            taken += interruption.first_of(driven.iterator)["id"].tolist()
        except Interrupted:
            interrupts += 1
            assert driven.place() == before
            taken += first_of(driven.iterator)["id"].tolist()
            assert taken == WHOLE[: len(taken)]
            # After a batch that arrived normally.
            taken += first_of(driven.iterator)["id"].tolist()
        else:
            if not interruption.is_raised:
                break
        assert taken == WHOLE[: len(taken)]
    assert interrupts > 15
    assert taken == WHOLE[: len(taken)]


@pytest.mark.parametrize("maker", MAKERS)
def test_interrupt_anywhere_at_the_end_loses_no_batch(server: Server, maker: str):
    made = MAKERS[maker](server)
    driven = next(made)
    taken = [int(first_of(driven.iterator)["id"][0]) for _ in range(ROWS)]
    interrupts = 0
    for at in itertools.count(1):
        try:
            Interruption(at).first_of(driven.iterator)
        except Interrupted:
            interrupts += 1
        except EOFError:
            break
    assert interrupts
    assert taken == WHOLE
    assert driven.place() == (1, 0)
    with pytest.raises(EOFError):
        first_of(driven.iterator)


@contextlib.contextmanager
def alarms(first: float, seconds: float) -> Iterator[list[int]]:
    """Sends signals whose handler raises anywhere below `__next__`, the first earlier than the others; counts them."""
    count = [0]

    def handler(_: int, frame: FrameType | None) -> None:
        if finalizes(frame):
            return
        while frame is not None:
            if frame.f_code.co_name == "__next__" and "forebay" in frame.f_code.co_filename:
                count[0] += 1
                raise Interrupted
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first, seconds)
    try:
        yield count
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("maker", "seconds"), [("FlightDataset", 0.0007), ("FlightDataset", 0.003), ("Stream", 0.05)])
def test_signals_at_any_time_lose_no_batch(server: Server, maker: str, seconds: float):
    taken: list[int] = []
    interrupts = 0
    made = MAKERS[maker](server)
    # An epoch may end before the first signal, so that of each is earlier.
    for number in range(1, 1000):
        if number > 3 and interrupts:
            break
        driven = next(made)
        taken.clear()
        with alarms(seconds / number, seconds) as count:
            while True:
                try:
                    for batch in driven.iterator:
                        taken.append(int(batch["id"][0]))
                    break
                except Interrupted:
                    assert driven.place() == ((0, len(taken)) if len(taken) < ROWS else (1, 0))
        interrupts += count[0]
        assert taken == WHOLE
        assert driven.place() == (1, 0)
    assert interrupts


def test_interrupt_while_the_server_is_stopped_loses_no_batch(serve: Serve, flights_folder: Any):
    server = serve({"flights": flights_folder})
    plan = fb.Plan(outputs={"x": fb.cols("year", "month", "day", "hour", "minute", "flight", "distance")})
    data = FlightDataset(server.url, "flights", plan, batch_size=4096, with_row_ids=True)
    batches = iter(data)
    rows = [int(first_of(batches)["__row_id"][0])]
    server.process.send_signal(signal.SIGSTOP)
    interrupts = 0
    try:
        with alarms(0.3, 0.3):
            while not interrupts:
                try:
                    rows.append(int(first_of(batches)["__row_id"][0]))
                except Interrupted:
                    interrupts += 1
                    assert data.state_dict()["position"] == 4096 * len(rows)
                except EOFError:
                    pytest.fail("the epoch is not over")
    finally:
        server.process.send_signal(signal.SIGCONT)
    rows += [int(batch["__row_id"][0]) for batch in batches]
    assert rows == list(range(0, 336_776, 4096))
    assert data.state_dict()["epoch"] == 1


def test_batch_taken_by_a_signal_handler_is_not_repeated(serve: Serve, flights_folder: Any):
    """A handler, or another thread, that takes from the iterator in which `next` waits."""
    server = serve({"flights": flights_folder})
    plan = fb.Plan(outputs={"x": fb.cols("distance")})
    data = FlightDataset(server.url, "flights", plan, batch_size=512, with_row_ids=True)
    batches = iter(data)
    rows: list[int] = []

    def handler(*_: Any) -> None:
        # The end of the epoch stays in the handler: raised from it, it would discard the batch that the loop holds.
        with contextlib.suppress(EOFError):
            rows.extend(first_of(batches)["__row_id"].tolist())
            # One signal after another: on a busy machine an interval would nest handlers without limit.
            signal.setitimer(signal.ITIMER_REAL, 0.002)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    try:
        for batch in batches:
            rows += batch["__row_id"].tolist()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sorted(rows) == list(range(336_776))


def test_threads_sharing_an_iterator_take_each_batch_once(server: Server):
    plan = fb.Plan(outputs={"x": fb.cols("distance")})
    batches = iter(FlightDataset(server.url, "flights", plan, batch_size=512, with_row_ids=True))
    taken: list[list[int]] = [[], [], []]

    def take(rows: list[int]) -> None:
        for batch in batches:
            rows += batch["__row_id"].tolist()

    threads = [threading.Thread(target=take, args=(rows,)) for rows in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(row for rows in taken for row in rows) == list(range(336_776))


class Stalled:
    """A stream that gives nothing until it is closed."""

    info = StreamInfo(snapshot="", plan_id="", rows=1, steps=1, rank=0, rank_rows=1, rank_steps=1)

    def __init__(self) -> None:
        self.closed = threading.Event()

    def __next__(self) -> Any:
        self.closed.wait()
        raise StopIteration

    def cursors(self) -> Any:
        return lambda header: fb.Cursor(1, 0, 1)

    def close(self) -> None:
        self.closed.set()


def test_closing_from_another_thread_is_not_an_end_of_epoch(server: Server, monkeypatch: pytest.MonkeyPatch):
    data = FlightDataset(server.url, "tiny", IDS, batch_size=1)
    stalled = Stalled()
    monkeypatch.setattr(data, "opener", lambda: lambda place: stalled)
    batches = iter(data)
    assert isinstance(batches, FlightBatches)
    closing = threading.Timer(0.2, batches.close)
    closing.start()
    assert list(batches) == []
    closing.join()
    state = data.state_dict()
    assert (state["epoch"], state["position"]) == (0, 0)


@pytest.mark.parametrize("maker", MAKERS)
def test_close_is_not_an_end_of_epoch(server: Server, maker: str):
    made = MAKERS[maker](server)
    driven = next(made)
    for _ in range(3):
        first_of(driven.iterator)
    driven.iterator.close()  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(EOFError):
            first_of(driven.iterator)
        assert driven.place() == (0, 3)


def test_interrupted_close_can_be_repeated(server: Server):
    before = set(threading.enumerate())
    for at in itertools.count(1):
        data = FlightDataset(server.url, "tiny", IDS, batch_size=1)
        batches = iter(data)
        assert isinstance(batches, FlightBatches)
        first_of(batches)
        own, seen = sys._getframe(), 0

        def look(frame: FrameType, event: str, _: Any) -> None:
            nonlocal seen
            # What Python does with an exception while it joins a thread is its own.
            is_pythons = "threading" in frame.f_code.co_filename
            if frame is own or event not in ("call", "c_return") or is_pythons:  # noqa: B023
                return
            seen += 1
            if seen == at:  # noqa: B023
                sys.setprofile(None)
                raise Interrupted

        was_interrupted = False
        sys.setprofile(look)
        try:
            batches.close()
        except Interrupted:
            was_interrupted = True
        finally:
            sys.setprofile(None)
        batches.close()
        assert poll(lambda: set(threading.enumerate()) <= before)
        assert data.state_dict()["position"] == 1
        if not was_interrupted:
            break
    assert at > 5


def test_stream_error_is_raised_again_and_is_not_an_end_of_epoch(server: Server):
    plan = fb.Plan(outputs={"gappy": fb.cols("gappy")})
    data = FlightDataset(server.url, "tiny", plan, batch_size=1)
    batches = iter(DataLoader(data, batch_size=None))
    taken: list[Any] = []
    with pytest.raises(fb.ForebayError, match="gappy"):
        taken.extend(batches)
    steps = len(taken)
    direct = iter(data)
    for _ in range(3):
        with pytest.raises(fb.ForebayError, match="gappy"):
            list(direct)
        assert (data.state_dict()["epoch"], data.state_dict()["position"]) == (0, steps)


def test_batch_stays_until_the_next_one_is_requested(server: Server):
    with fb.connect(server.url) as client:
        ahead = Prefetch(client.stream("tiny", IDS, batch_size=10), lambda batch: batch.header.step, depth=3)
        first = ahead.after(0)
        assert first is not None
        assert ahead.after(0) is first
        assert [found.value for n in range(10) if (found := ahead.after(n))] == list(range(10))
        assert ahead.after(10) is None
        assert not ahead.is_closed
        ahead.close()
        assert ahead.is_closed
        assert ahead.after(1) is None
