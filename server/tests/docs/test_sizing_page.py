"""The numbers of the page on sizes that one machine is too small for are those that its commands print."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from harness.documents import BOOK
from harness.repository import ROOT
from harness.serving import server_binary

PAGE = BOOK / "operations/when-one-machine-is-too-small.md"
BLOCKS = re.findall(r"```sh\n(forebay explain .*?)```\n+```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


def arguments(command: str) -> list[str]:
    program = str(Path(server_binary()).with_name("forebay"))
    return [program, *shlex.split(command.replace("\\\n", " "))[1:]]


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_page_has_a_terabyte_and_a_hundred():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize(("command", "shown"), BLOCKS)
def test_the_page_shows_what_the_command_prints(command: str, shown: str):
    assert run(*arguments(command)) == shown


@pytest.mark.parametrize(("command", "_shown"), BLOCKS)
def test_json_has_the_same_servers(command: str, _shown: str):
    sizing = json.loads(run(*arguments(command), "--json"))["sizing"]
    servers = sizing["servers"]
    assert servers["servers"] > servers["busy_servers"] > 0
    assert servers["epoch_seconds"] > 0
    assert sizing["fit"]["seconds"] > 0


def test_the_page_states_the_measured_numbers():
    runs, text = ROOT / "benches/runs", PAGE.read_text()
    ranks = json.loads((runs / "2026-11-23-x86-64-2-cores/ranks.json").read_text())
    assert f"{ranks['summary']['64 ranks']['server_cpu_seconds_per_million_rows']:.2f}" in {"0.65", "0.64"}
    assert f"{ranks['stored_bytes']:,}" in text
    fits = json.loads((runs / "2026-11-23-x86-64-2-cores/fit_kept.json").read_text())
    assert f"{fits['medians']['first']['server_cpu_seconds']:.2f} s, median of three" in text
