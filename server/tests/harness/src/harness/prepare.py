"""Runs of a real forebay-prepare."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.repository import ROOT

MANIFEST = "_forebay_manifest.json"
RUN_SECONDS = 120

Start = Callable[..., subprocess.Popen[str]]
"""Starts a command line."""


def prepare_binary() -> str:
    """The program under test; a missing one is an error, never a skip."""
    path = Path(os.environ.get("FOREBAY_PREPARE_BIN") or ROOT / "target/debug/forebay-prepare")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: build it with `cargo build`, or set FOREBAY_PREPARE_BIN")
    return str(path)


def command(sql: str, datasets: Mapping[str, Path | str], out: Path | str, *flags: str) -> list[str]:
    """The command line of a run."""
    named = [argument for name, url in datasets.items() for argument in ("--dataset", f"{name}={url}")]
    return [prepare_binary(), "--sql", sql, *named, "--out", str(out), *flags]


@dataclass(frozen=True)
class Run:
    """A run that ended."""

    code: int
    stdout: str
    error: str

    @property
    def result(self) -> dict[str, Any]:
        """The line of --json."""
        assert self.code == 0, self.error
        return json.loads(self.stdout)


def prepare(sql: str, datasets: Mapping[str, Path | str], out: Path | str, *flags: str, program: str = "") -> Run:
    """Run forebay-prepare with --json."""
    arguments = command(sql, datasets, out, "--json", *flags)
    arguments[0] = program or arguments[0]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert "panicked" not in ended.stderr, ended.stderr
    return Run(ended.returncode, ended.stdout, ended.stderr)


def ended(process: subprocess.Popen[str], seconds: float) -> Run:
    """The end of a run that the fixture `start_program` has started."""
    stdout, error = process.communicate(timeout=seconds)
    assert "panicked" not in error, error
    return Run(process.returncode, stdout, error)


def manifest(out: Path) -> dict[str, Any]:
    """The manifest of a prepared dataset."""
    return json.loads((out / MANIFEST).read_text())


def written(out: Path) -> pa.Table:
    """The rows of a prepared dataset in the order of its manifest."""
    return pa.concat_tables(pq.read_table(out / file["path"], partitioning=None) for file in manifest(out)["files"])
