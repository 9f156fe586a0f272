"""Exceptions raised inside `next`, where a signal handler would raise them.

A handler runs where CPython looks for signals: when a function is entered, and when a function in C returns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """What the handler raises."""


def first_of(iterator: Iterator[Any]) -> Any:
    """The next batch, by a for loop: CPython looks for no signal between its step and its assignment."""
    for batch in iterator:
        return batch
    raise EOFError


def finalizes(frame: FrameType | None) -> bool:
    """Whether a finalizer runs, in which Python swallows an exception and complains."""
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "unraisable_hook") or "weakref" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


class Interruption:
    """An exception for one place of a `__next__`, counted in calls and returns from C."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.is_raised = False
        """Whether the place was reached. Python swallows what is raised in a callback of C code or a finalizer."""

    def first_of(self, iterator: Iterator[Any]) -> Any:
        """Return the next batch, with the exception raised at the place; raises EOFError at the end."""
        own, seen = sys._getframe(), 0

        def look(frame: FrameType, event: str, _: Any) -> None:
            nonlocal seen
            is_ours = frame is own or frame.f_code is first_of.__code__
            if is_ours or event not in ("call", "c_return") or finalizes(frame):
                return
            seen += 1
            if seen == self.place:
                sys.setprofile(None)
                self.is_raised = True
                raise Interrupted(f"at {frame.f_code.co_qualname}:{frame.f_lineno}")

        sys.setprofile(look)
        try:
            return first_of(iterator)
        finally:
            sys.setprofile(None)
