"""Forked children of a test process end with it.

A test that hangs ends its process. A child that it forked would live on, with the pipe over which pytest's main process
reads results, and that process would wait for it forever. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1


class _State:
    is_main_thread = False
    process = 0


def end_with_this_process() -> None:
    """Apply to later forks by the main thread: the signal follows the end of the thread that forks."""
    if not sys.platform.startswith("linux"):
        return
    prctl = ctypes.CDLL(None).prctl

    def before() -> None:
        _State.is_main_thread = threading.current_thread() is threading.main_thread()
        _State.process = os.getpid()

    def in_child() -> None:
        if _State.is_main_thread:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            # The process may have ended before the call.
            if os.getppid() != _State.process:
                os._exit(1)

    os.register_at_fork(before=before, after_in_child=in_child)
