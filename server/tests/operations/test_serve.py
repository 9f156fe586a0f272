"""The lines of Python that `forebay serve` prints read from its server."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.daemon import environment
from harness.serving import server_binary

FOREBAY = Path(server_binary()).with_name("forebay")

TABLES = {
    "numbers": pa.table({"a": [1.5, None, 3.0], "b": [1, 2, 3], "text": ["x", "y", None]}),
    "texts only": pa.table({"first": ["x", "y", None], "second": ["u", "v", "w"]}),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_printed_lines_run(name: str, tmp_path: Path):
    (tmp_path / name).mkdir()
    pq.write_table(TABLES[name], tmp_path / name / "a.parquet")
    command = [FOREBAY, "serve", tmp_path / name, "--port", "0", "--", "--state", tmp_path / "state"]
    serving = subprocess.Popen(
        [*map(str, command), "--drain-seconds", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment({"FOREBAY_SERVER_BIN": server_binary()}),
    )
    try:
        assert serving.stdout is not None
        printed = [serving.stdout.readline() for _ in range(7)]
        assert printed[0] == f"serving {name}: 3 rows\n"
        lines = "".join(line.removeprefix("    ") for line in printed[4:])
        done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, lines + done.stderr
        assert done.stdout
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(60) == 0
        if serving.stdout is not None:
            serving.stdout.close()
