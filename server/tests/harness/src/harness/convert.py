"""Runs of a real `forebay convert`, and what they wrote."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.serving import server_binary

RUN_SECONDS = 120


def client_binary() -> str:
    """The command line next to the server under test; a missing one is an error, never a skip."""
    path = Path(server_binary()).with_name("forebay")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: build it with `cargo build`")
    return str(path)


def command(sources: Path | list[Path], out: Path, *flags: str) -> list[str]:
    """The command line of a conversion."""
    listed = sources if isinstance(sources, list) else [sources]
    return [client_binary(), "convert", *map(str, listed), "--out", str(out), *flags]


@dataclass(frozen=True)
class Conversion:
    """A conversion that ended."""

    code: int
    stdout: str
    error: str
    out: Path

    @property
    def result(self) -> dict[str, Any]:
        """The line of --json."""
        assert self.code == 0, self.error
        return json.loads(self.stdout)

    def table(self) -> pa.Table:
        """The rows in the order of the files' names."""
        assert self.code == 0, self.error
        return pa.concat_tables(pq.read_table(path, partitioning=None) for path in parts(self.out))


def parts(out: Path) -> list[Path]:
    """The files of a result."""
    return sorted(out.iterdir())


def convert(sources: Path | list[Path], out: Path, *flags: str) -> Conversion:
    """Run `forebay convert --json`."""
    arguments = command(sources, out, "--json", *flags)
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert "panicked" not in ended.stderr, ended.stderr
    # A hidden folder is removed in any case.
    assert not list(out.parent.glob(f".{out.name}*"))
    return Conversion(ended.returncode, ended.stdout, ended.stderr, out)


def peak_bytes(sources: Path | list[Path], out: Path) -> int:
    """Run a conversion that succeeds, and return the most memory that it had."""
    script = "import resource,subprocess,sys; subprocess.run(sys.argv[1:], check=True); "
    script += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    arguments = ["python3", "-c", script, *command(sources, out, "--json")]
    shown = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=RUN_SECONDS)
    return int(shown.stdout.splitlines()[-1]) * 1024
