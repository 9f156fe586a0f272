"""Real processes of Python functions (``python -m forebay.udf``) for the tests and benches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from harness.daemon import poll

START_SECONDS = 60


def served(*names: str) -> list[str]:
    """The functions of `harness.udf.functions`, as the command names them."""
    return [f"harness.udf.functions:{name}" for name in names]


def searching(folder: Path | None) -> dict[str, str]:
    """An environment in which Python finds the modules of a folder first."""
    first = [] if folder is None else [str(folder)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*first, os.environ.get("PYTHONPATH", "")])}


class Functions:
    """A pool that serves functions; a context manager that ends it."""

    def __init__(self, functions: Sequence[str], path: Path, *, processes: int = 2, folder: Path | None = None) -> None:
        self.path = path
        names = [*functions, "--listen", f"unix:{path}", "--processes", str(processes)]
        command = [sys.executable, "-m", "forebay.udf", *names]
        self.process = subprocess.Popen(command, env=searching(folder), stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def started(self) -> Functions:
        """Wait until it serves."""
        serving = poll(lambda: any("serving" in line for line in list(self.lines)), seconds=START_SECONDS)
        assert serving, "".join(self.lines)
        return self

    def flag(self, *names: str) -> list[str]:
        """The flags of a server that has these functions."""
        return [part for name in names for part in ("--udf", f"{name}=unix:{self.path}")]

    def __enter__(self) -> Functions:
        return self.started()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """End the pool; returns its exit code."""
        self.process.terminate()
        code = self.process.wait(10)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code
