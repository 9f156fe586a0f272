"""When to try again, where, and for how long: the policy alone, without a connection or a stream.

A pass asks each replica once, one right after the other: a server that drains or is gone costs no wait while another
answers. Between passes there is a pause, twice as long each time and jittered, so that the ranks of a job do not come
back all at once. Passes and seconds are both bounded.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .errors import BrokenStream, Cancelled, DeadlineExceeded, ForebayError, Overloaded, ServerEnded, Unavailable

T = TypeVar("T")

# 0.1 s + 0.2 s + … + 12.8 s of pauses, each of them shortened by up to a half: some 19 s where no connection hangs.
PASSES_MAX = 9
PAUSE_SECONDS_FIRST = 0.1
RETRY_SECONDS = 60.0

# Another try, here or elsewhere, may bring what was asked for. (A call is cancelled by neither side but through a
# broken connection: our own cancelling is looked at before.)
TRANSIENT = (Unavailable, DeadlineExceeded, Cancelled, BrokenStream, Overloaded)


@dataclass(frozen=True)
class Trouble:
    """What a replica answered instead."""

    url: str
    error: ForebayError


class Stopped(Protocol):
    """A flag that ends the tries: a `signal_safe.Latch`, or a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether the flag is set."""
        ...

    def wait(self, seconds: float, /) -> bool:
        """Wait for the flag, at most so long; returns whether it is set."""
        ...


def is_transient(error: BaseException) -> bool:
    """Whether another try may go well."""
    return isinstance(error, TRANSIENT) and not isinstance(error, ServerEnded)


def try_everywhere(
    attempt: Callable[[str], T],
    urls: Callable[[], Sequence[str]],
    *,
    seconds: float,
    stopped: Stopped,
    passed_over: tuple[type[ForebayError], ...] = (),
    before: Trouble | None = None,
    then: str = "",
) -> T | None:
    """Return what the first replica of `urls` gives that can; None once `stopped` is set, at once also from a pause.

    `before` is the trouble that made this necessary: where `seconds` is 0 it is raised as it is. A lasting error is
    raised at once, but for those of `passed_over`, which another replica may not have: they are raised when a pass
    gives no reason to hope. After the last pass, or `seconds`, raises `Unavailable`, which says how often and where it
    was tried; `then` says what the caller may do.
    """
    if before is not None and seconds <= 0:
        raise before.error
    troubles = [] if before is None else [before]
    tries = len(troubles)
    deadline = time.monotonic() + seconds
    for passed in range(PASSES_MAX):
        hope = False
        for url in urls():
            if stopped.is_set():
                return None
            try:
                return attempt(url)
            except (*TRANSIENT, *passed_over) as error:
                tries += 1
                troubles = [*(trouble for trouble in troubles if trouble.url != url), Trouble(url, error)]
                hope = hope or is_transient(error)
        last = troubles[-1].error
        if not hope or seconds <= 0:
            raise last
        pause = PAUSE_SECONDS_FIRST * 2**passed * random.uniform(0.5, 1.0)
        if passed + 1 == PASSES_MAX or time.monotonic() + pause > deadline:
            break
        if stopped.wait(pause):
            return None
    where = "; ".join(f"{trouble.url}: {trouble.error}" for trouble in troubles)
    kind = Overloaded if all(isinstance(trouble.error, Overloaded) for trouble in troubles) else Unavailable
    raise kind(f"gave up after {tries} tries: {where}{then}") from troubles[-1].error
