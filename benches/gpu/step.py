"""How a step of check.sh reports: JSON lines on stdout, and an exit code whose reason is the last line on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

SKIPPED = 77


class Skipped(Exception):
    """A step that cannot run here."""


class Failed(Exception):
    """A check that found a difference."""


def emit(**figures: object) -> None:
    """Print a line of results."""
    print(json.dumps(figures), flush=True)


def run(step: Callable[[], None]) -> None:
    """Run a step and end the process with its exit code; other exceptions end it with 1 and a traceback."""
    try:
        step()
    except Skipped as reason:
        print(reason, file=sys.stderr)
        sys.exit(SKIPPED)
    except Failed as reason:
        print(reason, file=sys.stderr)
        sys.exit(1)
