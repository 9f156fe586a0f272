"""The example `clean_join_train`: prepared and looked-up values equal those of pandas, and improve the model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from harness.prepare import prepare_binary
from harness.repository import ROOT
from harness.serving import server_binary

PROGRAM = ROOT / "client/python/examples/clean_join_train.py"


def test_joined_columns_equal_pandas_and_improve_the_model(tmp_path: Path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for binary in (server_binary(), prepare_binary()):
        (programs / Path(binary).name).symlink_to(binary)
    command = [sys.executable, str(PROGRAM), "--data", str(tmp_path / "data"), "--bin-dir", str(programs)]
    ended = subprocess.run(
        [*command, "--months", "2"], capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert "51,955 flights, 1,768 of them delivered twice" in ended.stdout
    assert "every value equal to pandas" in ended.stdout
    assert "airports from the stream equal to pandas" in ended.stdout
    losses = re.findall(r"^(?:flights alone|with the joined columns) +(0\.\d+) ", ended.stdout, re.MULTILINE)
    assert len(losses) == 2
    assert float(losses[1]) < float(losses[0])
