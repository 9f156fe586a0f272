"""Runs tests of the kernels' generated CUDA programs, alone or under compute-sanitizer, and reports each one.

The test program passes a test that it cannot run and prints `skipped: TEST: REASON`. Here that is a skipped step, or a
failed one if the test needs a device and the driver offers one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from device import driver_problem, find_nvrtc
from step import Failed, Skipped, emit, run

# Toolkits install compute-sanitizer next to nvcc, often outside the PATH.
FOLDERS = ("/usr/local/cuda/bin", "/opt/cuda/bin", "/usr/local/cuda/compute-sanitizer")
PASSED = re.compile(r"^test result: ok\. (\d+) passed", re.MULTILINE)
UNABLE = re.compile(r"^skipped: \w+: (.+)$", re.MULTILINE)
# The last line of each tool: memcheck and synccheck count errors, racecheck hazards.
CLEAN = re.compile(r"^=+ (?:ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards)", re.MULTILINE)


def sanitizer() -> str | None:
    """Return the path of compute-sanitizer."""
    return shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))


def command_of(program: Path, test: str, tool: str | None) -> list[str]:
    """Return the command that runs one test."""
    command = [str(program), "--exact", test, "--include-ignored", "--test-threads=1"]
    if tool is None:
        return command
    found = sanitizer()
    if found is None:
        raise Skipped("compute-sanitizer is not on the PATH, and not in /usr/local/cuda/bin")
    return [found, "--tool", tool, "--error-exitcode", "99", *command]


def problem_of(test: str, code: int, output: str, *, is_checked: bool) -> str:
    """Return why a test's output is not that of a test that passed; empty if it is."""
    passed = PASSED.search(output)
    if code != 0 or passed is None:
        lines = [line for line in output.splitlines() if line.strip()]
        return f"{test} ended with {code}: {lines[-1] if lines else 'no output'}"
    if passed[1] != "1":
        return f"the program has no test {test}"
    if is_checked and CLEAN.search(output) is None:
        return f"{test}: compute-sanitizer reported no summary without errors"
    return ""


def check(program: Path, test: str, tool: str | None, *, has_device: bool) -> str:
    """Run one test. Return why the test skipped itself; empty if it ran."""
    began = time.perf_counter()
    command = command_of(program, test, tool)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    output = done.stdout
    print(output, file=sys.stderr)
    if done.returncode == 0 and (unable := UNABLE.search(output)):
        if has_device:
            raise Failed(f"{test} skipped itself although the driver reports a device: {unable[1]}")
        return unable[1]
    if problem := problem_of(test, done.returncode, output, is_checked=tool is not None):
        raise Failed(problem)
    emit(test=test, tool=tool, seconds=round(time.perf_counter() - began, 3))
    return ""


def main() -> None:
    """Run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="test program of the kernels, with CUDA")
    parser.add_argument("--on-device", action="store_true", help="the tests need a device")
    parser.add_argument("--sanitizer", choices=("memcheck", "racecheck", "synccheck", "initcheck"))
    parser.add_argument("--cases", help="of the test that compares plans, these only: names separated by commas")
    parser.add_argument("tests", nargs="+")
    given = parser.parse_args()
    if not given.program.is_file():
        raise Failed(f"{given.program} does not exist; run make gpu-kit")
    if given.on_device and (problem := driver_problem()):
        raise Skipped(problem)
    if find_nvrtc() is not None:
        os.environ["FOREBAY_NVRTC"] = str(find_nvrtc())
    if given.cases:
        os.environ["FOREBAY_CASES"] = given.cases
    unable = [check(given.program, test, given.sanitizer, has_device=given.on_device) for test in given.tests]
    if any(unable):
        raise Skipped("; ".join(dict.fromkeys(filter(None, unable))))


if __name__ == "__main__":
    run(main)
