"""A disconnecting client cancels its fit, during the pass and after it, and nothing is left behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.daemon import LOOPBACK, Daemon, poll

ROWS = 800_000
# So little that the distinct values of the table are spilled, and merged from disk when the last row has been read.
FIT_MEMORY_BYTES = 8 << 20
PART = {"columns": ["x"], "ops": [{"vocab": {"min_count": 2}}]}
REQUEST = {"dataset": "t", "plan": {"outputs": [{"name": "o", "dtype": "INT32", "parts": [PART]}]}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unsorted strings, all distinct but one."""
    folder = tmp_path_factory.mktemp("data")
    numbers = np.random.default_rng(9).permutation(ROWS)
    numbers[0] = numbers[1]
    column = pa.array(numbers.astype("U7"))
    pq.write_table(pa.table({"x": column}), folder / "part.parquet", row_group_size=40_000)
    return folder


@pytest.fixture
def daemon(table: Path, tmp_path: Path) -> Iterator[Daemon]:
    state = tmp_path / "state"
    limit = ("--fit-memory-bytes", str(FIT_MEMORY_BYTES))
    started = Daemon(*LOOPBACK, "--state", str(state), "--dataset", f"t={table}", *limit)
    yield started
    started.stop()


def spilled(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "state" / "spill").rglob("*") if path.is_file()]


def active(daemon: Daemon) -> float:
    found = re.search(r"^forebay_fits_active (\S+)$", daemon.get("/metrics")[2], re.MULTILINE)
    assert found is not None
    return float(found[1])


# A client in a separate process, which prints one update per line.
CLIENT = """
import sys
import pyarrow.flight as fl
for update in fl.connect(sys.argv[1]).do_action(fl.Action("fit", sys.argv[2].encode())):
    print(update.body.to_pybytes().decode(), flush=True)
"""


@pytest.mark.parametrize("when", ["reading", "merging"])
def test_disconnected_client_cancels_its_fit(daemon: Daemon, tmp_path: Path, when: str):
    command = [sys.executable, "-c", CLIENT, daemon.url, json.dumps(REQUEST)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        for line in client.stdout:
            progress = json.loads(line)["progress"]
            is_whole = progress["rows_done"] == progress["rows_total"]
            if is_whole if when == "merging" else spilled(tmp_path):
                break
        assert poll(lambda: spilled(tmp_path)), "nothing was spilled: this test tests nothing"
        assert active(daemon) == 1, "the fit is over before its client went away"
        client.kill()
    assert poll(lambda: active(daemon) == 0, seconds=30)
    assert poll(lambda: not spilled(tmp_path), seconds=30), "the fit left its files"
    assert not list((tmp_path / "state" / "plans").iterdir()), "the fit ran to completion"
    # The server keeps serving.
    with fl.connect(daemon.url) as other:
        *_, last = other.do_action(fl.Action("fit", json.dumps(REQUEST).encode()))
    values = json.loads(last.body.to_pybytes())["result"]["plan"]["outputs"][0]["parts"][0]["ops"][0]["vocab"]["values"]
    assert len(values["strings"]) == 1
    assert not spilled(tmp_path)
