"""Retry policy: when to retry, on which replica, and for how long. Makes no connection.

A pass tries each replica once without a pause, so a draining or unreachable server costs no delay while another one
responds. Pauses between passes double and are jittered, so that the ranks of a job do not reconnect at once. Passes and
time are limited.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from forebay.errors import BrokenStream, Cancelled, DeadlineExceeded, ForebayError, Overloaded, ServerEnded, Unavailable

T = TypeVar("T")

# Pauses of 0.1 s + 0.2 s + … + 12.8 s, each jittered down to half: about 19 s if no connection hangs.
PASSES_MAX = 9
PAUSE_SECONDS_FIRST = 0.1
RETRY_SECONDS = 60.0

# Errors after which a retry may succeed, on any replica. Only a broken connection cancels a call: callers handle their
# own cancellation first.
TRANSIENT = (Unavailable, DeadlineExceeded, Cancelled, BrokenStream, Overloaded)


@dataclass(frozen=True)
class Failure:
    """A replica's error."""

    url: str
    error: ForebayError


class Stopped(Protocol):
    """A flag that ends the retries: a `signal_safe.Latch` or a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether the flag is set."""
        ...

    def wait(self, seconds: float, /) -> bool:
        """Wait for the flag up to `seconds`; return whether it is set."""
        ...


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed."""
    return isinstance(error, TRANSIENT) and not isinstance(error, ServerEnded)


def try_everywhere(
    attempt: Callable[[str], T],
    urls: Callable[[], Sequence[str]],
    *,
    seconds: float,
    stopped: Stopped,
    skipped: tuple[type[ForebayError], ...] = (),
    cause: Failure | None = None,
    hint: str = "",
) -> T | None:
    """Return the result of the first replica of `urls` that succeeds; None once `stopped` is set, also during a pause.

    `cause` is the failure that led here; it is raised unchanged if `seconds` is 0. Permanent errors are raised at once,
    except those in `skipped`, which another replica may not have: these are raised after a pass without a transient
    error. After the last pass, or `seconds`, raises `Unavailable` with the number of attempts, each replica's last
    error and the `hint`.
    """
    if cause is not None and seconds <= 0:
        raise cause.error
    failures = [] if cause is None else [cause]
    tries = len(failures)
    deadline = time.monotonic() + seconds
    for passed in range(PASSES_MAX):
        may_recover = False
        for url in urls():
            if stopped.is_set():
                return None
            try:
                return attempt(url)
            except (*TRANSIENT, *skipped) as error:
                tries += 1
                failures = [*(failure for failure in failures if failure.url != url), Failure(url, error)]
                may_recover = may_recover or is_transient(error)
        last = failures[-1].error
        if not may_recover or seconds <= 0:
            raise last
        pause = PAUSE_SECONDS_FIRST * 2**passed * random.uniform(0.5, 1.0)
        if passed + 1 == PASSES_MAX or time.monotonic() + pause > deadline:
            break
        if stopped.wait(pause):
            return None
    where = "; ".join(f"{failure.url}: {failure.error}" for failure in failures)
    kind = Overloaded if all(isinstance(failure.error, Overloaded) for failure in failures) else Unavailable
    raise kind(f"gave up after {tries} tries: {where}{hint}") from failures[-1].error
