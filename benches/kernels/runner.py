"""The process that runs Forebay's kernels (benches/src/bin/kernel_runner), and its workloads as contenders."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc  # pyright: ignore[reportUnusedImport]

from rounds import Visit

Output = Mapping[str, Any]


class Runner:
    """Sends requests and reads replies, one line of JSON each. Requests are also written to a file, to be replayed."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._log = (folder / "requests.jsonl").open("w")
        self._works = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()

    def call(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the reply; an error ends the bench."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({verb: arguments})
        for stream in (self._log, self._process.stdin):
            stream.write(line + "\n")
            stream.flush()
        reply = json.loads(self._process.stdout.readline() or '{"error": "the kernel runner exited"}')
        if "error" in reply:
            raise SystemExit(f"{verb}: {reply['error']}")
        return reply

    def load(self, table: str, columns: Mapping[str, pa.Array]) -> None:
        """Load columns through an Arrow file of one record batch."""
        path = self.folder / f"{table}.arrow"
        batch = pa.record_batch(dict(columns))
        with pa.ipc.new_file(path, batch.schema) as file:  # pyright: ignore[reportArgumentType]
            file.write_batch(batch)
        self.call("load", table=table, path=str(path))

    def prepare(self, name: str, table: str, output: Output, *, batch_rows: int) -> Forebay:
        """Compile an output over a table's columns."""
        self._works += 1
        work = f"{table} {self._works}"
        self.call("prepare", work=work, table=table, batch_rows=batch_rows, output=output)
        return Forebay(self, name, work)


class Forebay:
    """A contender: Forebay with one batch size; each batch is freed before the next."""

    # The first pass of a visit runs with the previous contender's caches.
    passes = 3
    rounds_max: int | None = None

    def __init__(self, runner: Runner, name: str, work: str) -> None:
        self.name = name
        self._runner, self._work = runner, work

    def visit(self, rows: int | None = None) -> Visit:
        """Time each pass over the first `rows` rows (default: all), after a warm-up pass."""
        return Visit(**self._runner.call("run", work=self._work, passes=self.passes + 1, rows=rows)).without_first()

    def result(self) -> np.ndarray[Any, Any]:
        """Run once and return the output as a NumPy array: [rows] or [rows, columns]."""
        path = self._runner.folder / "output.arrow"
        self._runner.call("write", work=self._work, path=str(path))
        table = pa.ipc.open_file(path).read_all()  # pyright: ignore[reportArgumentType]
        path.unlink()
        arrays: list[np.ndarray[Any, Any]] = []
        for chunk in table.column(0).chunks:
            if isinstance(chunk, pa.ExtensionArray):
                arrays.append(chunk.storage.flatten().to_numpy().reshape(len(chunk), -1))
            else:
                arrays.append(chunk.to_numpy())
        return np.concatenate(arrays)


class RunnerCopy:
    """A contender: memcpy of a table's columns within the kernels' process."""

    passes = 3
    rounds_max: int | None = None

    def __init__(self, runner: Runner, name: str, table: str) -> None:
        self.name = name
        self._runner, self._table = runner, table

    def visit(self) -> Visit:
        """Time each pass, after a warm-up pass."""
        return Visit(**self._runner.call("copy", table=self._table, passes=self.passes + 1)).without_first()


def chain(column: str, *ops: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chain in the form of a request."""
    return {"column": column, "ops": list(ops)}


def output(dtype: str, chains: Sequence[Mapping[str, Any]]) -> Output:
    """Return an output in the form of a request."""
    return {"dtype": dtype, "chains": list(chains)}
