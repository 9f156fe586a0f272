"""One run of a contender's process, with the time, CPU seconds and memory of its epoch."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import uuid
from pathlib import Path
from typing import Any

from environments import ENVIRONMENTS, python_of
from harness.repository import ROOT
from lineup import Entry
from process_tree import MARK, ProcessTree, machine_cpu_seconds

CONTENDERS = Path(__file__).resolve().parent / "contenders"
# Contenders use its data and server modules.
HARNESS = ROOT / "server/tests/harness/src"
READY_SECONDS = 300.0
RESULT_SECONDS = 600.0
END_SECONDS = 30.0
LOG_LINES = 8


class Failed(Exception):
    """A contender exited or timed out instead of answering."""


def visit(entry: Entry, job: dict[str, Any]) -> dict[str, Any]:
    """Run the job; return the contender's answer with CPU seconds and peak memory of all its processes."""
    mark = uuid.uuid4().hex
    tree = ProcessTree(mark)
    log = Path(job["scratch"]) / "log.txt"
    modules = os.pathsep.join(filter(None, [str(HARNESS), os.environ.get("PYTHONPATH", "")]))
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(python_of(entry.environment)), str(CONTENDERS / entry.script), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, MARK: mark, "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=job["scratch"],
        )
    lines = _lines(process)
    try:
        cpu_first = 0.0
        versions = _receive(process, lines, READY_SECONDS, log)["ready"]
        cpu_before, machine_before = tree.cpu_seconds(), machine_cpu_seconds()
        tree.watch()
        _continue(process)
        answer = _receive(process, lines, RESULT_SECONDS, log)
        if "first" in answer:
            cpu_first = tree.cpu_seconds() - cpu_before
            answer = _receive(process, lines, RESULT_SECONDS, log)
        # Read while it waits, so that its children still exist.
        cpu_seconds, machine_seconds = tree.cpu_seconds() - cpu_before, machine_cpu_seconds() - machine_before
        peak_bytes = tree.peak_bytes()
        _continue(process)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    finally:
        tree.end()
        process.wait()
    measured = {
        "cpu_seconds": cpu_seconds,
        "first_cpu_seconds": cpu_first,
        # Includes the harness, which samples memory.
        "others_cpu_seconds": max(0.0, machine_seconds - cpu_seconds),
        "peak_bytes": peak_bytes,
    }
    return {**answer["result"], **measured, "versions": versions}


def _lines(process: subprocess.Popen[str]) -> queue.Queue[str]:
    """Return a queue of its lines, which supports timeouts; an empty line is the end."""
    found: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            found.put(line)
        found.put("")

    threading.Thread(target=read, name="contender-lines", daemon=True).start()
    return found


def _receive(process: subprocess.Popen[str], lines: queue.Queue[str], seconds: float, log: Path) -> dict[str, Any]:
    try:
        line = lines.get(timeout=seconds)
    except queue.Empty:
        raise Failed(f"no answer within {seconds:g} s") from None
    if not line:
        code = process.wait()
        raise Failed(f"exited with {code}: {_last_line(log)}")
    return json.loads(line)


def _continue(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _last_line(log: Path) -> str:
    """Return the last line of its log, with local paths shortened."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    line = lines[-1] if lines else "no output"
    for folder in (log.parent, ENVIRONMENTS.resolve(), ENVIRONMENTS, ROOT):
        line = line.replace(str(folder), folder.name)
    return line
