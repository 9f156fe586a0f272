"""benches/gpu/check.sh on a machine without a GPU, its judgement of what a GPU reports, and the kit that has it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import Any

import pytest

from harness.archives import unpack
from harness.repository import ROOT
from harness.serving import server_binary

pytestmark = pytest.mark.long
GPU = ROOT / "benches/gpu"
sys.path.append(str(GPU))
cuda_trace, device, parity, step = (
    importlib.import_module(name) for name in ("cuda_trace", "device", "parity", "step")
)

PASSED = "test result: ok. 1 passed; 0 failed"
NO_DRIVER = "no CUDA driver (libcuda.so.1 cannot be loaded)"
SECONDS_MAX = 580
without_gpu = pytest.mark.skipif(not device.driver_problem(), reason="this machine has a GPU")


def parity_program() -> str:
    """The newest test program of the kernels with CUDA; a missing one is an error, never a skip."""
    if named := os.environ.get("FOREBAY_PARITY_BIN"):
        return named
    folder = Path(server_binary()).parent / "deps"
    built = [path for path in folder.glob("forebay_kernels-*") if path.suffix == "" and os.access(path, os.X_OK)]
    for path in sorted(built, key=lambda path: path.stat().st_mtime, reverse=True):
        listed = subprocess.run([path, "--list"], capture_output=True, text=True, timeout=60)
        if "cuda::tests::device" in listed.stdout:
            return str(path)
    raise FileNotFoundError(f"{folder} has no tests of forebay-kernels with CUDA: cargo build --workspace --tests")


def check(
    out: Path, *arguments: str, root: Path = ROOT, python: str = sys.executable, **variables: str
) -> tuple[int, dict[str, Any], str]:
    """Run check.sh of a checkout. Return its exit code, its steps by name, and what it printed."""
    programs = {"FOREBAY_SERVER_BIN": server_binary(), "FOREBAY_GPU_KERNEL_BIN": "/bin/true"}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **programs, **variables}
    return ran(root, out, *arguments, python=python, environment=environment)


def ran(
    root: Path, out: Path, *arguments: str, python: str, environment: dict[str, str]
) -> tuple[int, dict[str, Any], str]:
    command = ["bash", root / "benches/gpu/check.sh", "--out", out, "--python", python, *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    summary = out / "summary.jsonl"
    steps = [json.loads(line) for line in summary.read_text().splitlines()] if summary.exists() else []
    return ended.returncode, {each["step"]: each for each in steps}, ended.stdout + ended.stderr


def results(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


# === Without a GPU ===


@without_gpu
def test_a_kit_runs_where_it_is_unpacked_without_an_environment(tmp_path: Path):
    server = Path(server_binary())
    programs = ["--server", server, "--gpu-kernel", "/bin/true", "--parity", parity_program()]
    programs += ["--native", server.parent / "lib_native.so", "--preset", "0"]
    command = [sys.executable, GPU / "pack.py", "--out", tmp_path / "packed", "--limit-bytes", "1000000000", *programs]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    with tarfile.open(tmp_path / "packed/forebay-gpu-kit.tar.xz") as archive:
        unpack(archive, tmp_path / "empty")
    kit, out = tmp_path / "empty/forebay-gpu-kit", tmp_path / "results"
    # The kernels' tests, which `compile` and `host` run, run as tests of the crate.
    names = ["packages", "environment", "parity", "landing", "registration", "memory", "graph", "server", "failures"]
    names += ["timeline", "fused", "loaders", "scale", "racecheck", "memcheck"]
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "empty"), "OMP_NUM_THREADS": "1"}
    options = ("--no-install", "--archives", "--only", ",".join(names))
    code, steps, printed = ran(kit, out, *options, python=sys.executable, environment=bare)
    assert (code, list(steps)) == (0, names), printed
    assert {name for name, each in steps.items() if each["status"] == "ran"} == {"packages", "environment"}
    reasons = {name: each["reason"] for name, each in steps.items() if each["status"] == "skipped"}
    rehearsed = f"rehearsed on the CPU only: {NO_DRIVER}"
    without = ("parity", "landing", "registration", "graph", "fused", "racecheck", "memcheck")
    assert reasons == {
        **dict.fromkeys(without, NO_DRIVER),
        "server": f"compared on the CPU only: {NO_DRIVER}",
        "failures": f"only the case without a GPU: {NO_DRIVER}",
        **dict.fromkeys(("memory", "timeline", "loaders"), rehearsed),
        "scale": f"rehearsed on two cores only: {NO_DRIVER}",
    }
    assert (out / "summary.txt").read_text() in printed
    assert "check.sh: landing skipped" in printed
    # Few files, as a machine may return only some.
    archives = sorted(path.name for path in out.iterdir())
    assert archives == [
        *(f"{group}.tar.gz" for group in ("copies", "cores", "machine", "sanitizers", "speed", "streams")),
        "summary.jsonl",
        "summary.txt",
    ]
    for path in out.glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            unpack(archive, out)
    compared = [line["shuffle"] for line in results(out, "server") if line.get("bytes", 0) > 1_000_000]
    assert compared == [False, True, False, False, True]
    landed = [(line["compared"], line["transport"]) for line in results(out, "server") if "transport" in line]
    assert landed == [("device='cpu'", "native"), ("device='cpu'", "ring")]
    arrived = {line["transport"]: line["arrived_by"] for line in results(out, "timeline") if "arrived_by" in line}
    assert arrived == {"tcp": "native", "unix": "ring"}
    assert [line["contender"] for line in results(out, "scale")] == ["forebay-client"]
    assert {line["rows"] for line in results(out, "loaders")} == {20_000}
    assert [line["transport"] for line in results(out, "memory")] == ["tcp", "unix"]


@without_gpu
def test_programs_are_compiled_and_compared_where_there_is_no_gpu(tmp_path: Path):
    program = script(tmp_path / "tests", f"echo '{PASSED}'")
    code, steps, printed = check(tmp_path / "out", "--no-install", "--only", "compile,host", FOREBAY_PARITY_BIN=program)
    assert (code, {each["status"] for each in steps.values()}) == (0, {"ran"}), printed
    compiled = [line["test"] for line in results(tmp_path / "out", "compile")]
    assert compiled[0] == "cuda::tests::sources::nvrtc_compiles_every_source"
    assert len(results(tmp_path / "out", "host")) == 3


@without_gpu
def test_missing_packages_are_named_and_skip_what_imports_them(tmp_path: Path):
    # A Python without packages.
    venv.create(tmp_path / "bare")
    bare = str(tmp_path / "bare/bin/python")
    code, steps, printed = check(
        tmp_path, "--no-install", "--only", "packages,environment,server,timeline", python=bare
    )
    assert code == 0, printed
    assert steps["packages"]["reason"].startswith("missing: torch, pyarrow, numpy, nvidia-cuda-nvrtc; nothing was")
    assert steps["environment"]["status"] == "ran"
    assert {steps[name]["reason"] for name in ("server", "timeline")} == {"not installed: torch, pyarrow, numpy"}


def test_a_failed_step_fails_the_check(tmp_path: Path):
    code, steps, _ = check(tmp_path, "--only", "compile,host", FOREBAY_PARITY_BIN="/bin/false")
    assert (code, {each["status"] for each in steps.values()}) == (1, {"failed"})
    code, steps, _ = check(tmp_path, "--only", "compile", FOREBAY_PARITY_BIN="/absent")
    assert (code, steps["compile"]["reason"]) == (1, "/absent does not exist; run make gpu-kit")
    code, steps, _ = check(tmp_path, "--only", "server", FOREBAY_SERVER_BIN="/bin/false")
    assert (code, steps["server"]["status"]) == (1, "failed")


def test_the_time_of_all_steps_is_limited(tmp_path: Path):
    slow = script(tmp_path / "slow", "exec sleep 60")
    code, steps, _ = check(tmp_path, "--only", "compile,host", "--seconds", "5", FOREBAY_PARITY_BIN=slow)
    reasons = [each["reason"] for each in steps.values()]
    assert code == 1
    assert reasons[0].startswith("took longer than ")
    assert reasons[1] == "no time left: the limit of all steps is 5 s"


@pytest.mark.parametrize("arguments", [("--only", "absent"), ("--seconds", "soon"), ("--out",), ("now",)])
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: tuple[str, ...]):
    command = ["bash", GPU / "check.sh", "--python", sys.executable, *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.startswith("check.sh: ")) == (2, True)


# === With a GPU ===


@pytest.mark.parametrize(
    ("code", "output", "problem"),
    [
        (0, f"{PASSED}\n========= ERROR SUMMARY: 0 errors", ""),
        (0, f"{PASSED}\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", ""),
        (0, f"{PASSED}\n========= ERROR SUMMARY: 10 errors", "t: compute-sanitizer reported no summary without errors"),
        (0, PASSED, "t: compute-sanitizer reported no summary without errors"),
        (99, f"{PASSED}\n========= ERROR SUMMARY: 0 errors", "t ended with 99: ========= ERROR SUMMARY: 0 errors"),
        (0, "test result: ok. 0 passed; 0 failed", "the program has no test t"),
        (-11, "", "t ended with -11: no output"),
    ],
)
def test_a_sanitizers_report_decides(code: int, output: str, problem: str):
    assert parity.problem_of("t", code, output, is_checked=True) == problem


def test_a_test_that_skips_itself_fails_only_where_there_is_a_device(tmp_path: Path):
    program = Path(script(tmp_path / "tests", f"echo 'skipped: t: no NVRTC' >&2; echo '{PASSED}'"))
    assert parity.check(program, "t", None, has_device=False) == "no NVRTC"
    with pytest.raises(step.Failed, match="although the driver reports a device: no NVRTC"):
        parity.check(program, "t", None, has_device=True)


def event(category: str, start: float, length: float, name: str = "Memcpy HtoD (Pinned -> Device)") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length}


def test_overlap_is_the_part_of_copies_that_runs_under_kernels():
    events = [
        {"ph": "M", "name": "process_name"},
        event("kernel", 0, 10, "gemm"),
        event("kernel", 5, 15, "relu"),
        event("kernel", 100, 10, "gemm"),
        event("gpu_memcpy", 15, 10),
        event("gpu_memcpy", 26, 4, "Memcpy HtoD (Pageable -> Device)"),
        event("gpu_memcpy", 102, 2),
        event("gpu_memcpy", 104, 2),
        event("gpu_memcpy", 0, 50, "Memcpy DtoH (Device -> Pageable)"),
    ]
    overlap = cuda_trace.overlap_of(events, copies_per_step=2)
    assert (overlap.copies, overlap.pinned_copies, overlap.kernels) == (4, 3, 3)
    assert (overlap.copy_us, overlap.kernel_us, overlap.overlapped_us) == (18, 30, 9)
    assert (overlap.steps, overlap.overlapped_steps, overlap.ratio) == (2, 1, 0.5)


# === The kit ===


def pack(out: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Pack a kit of scripts in place of programs."""
    out.mkdir(exist_ok=True)
    server = script(out / "server", "echo forebay-server 9.9")
    programs = ["--server", server, "--gpu-kernel", server, "--native", server]
    command = [sys.executable, GPU / "pack.py", *programs, "--out", out, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_kit_notices_a_changed_file(tmp_path: Path):
    packed = pack(tmp_path / "out", "--parity", "/bin/true")
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(tmp_path / "out/forebay-gpu-kit.tar.xz") as archive:
        unpack(archive, tmp_path)
    kit = tmp_path / "forebay-gpu-kit"
    manifest = json.loads((kit / "MANIFEST.json").read_text())
    assert manifest["server"] == "forebay-server 9.9"
    assert {"bin/kernel-parity", "benches/gpu/check.sh", "client/python/src/forebay/torch.py"} <= set(manifest["files"])
    variables = {"FOREBAY_SERVER_BIN": "", "FOREBAY_GPU_KERNEL_BIN": ""}
    code, _, printed = check(tmp_path / "results", "--only", "environment", root=kit, **variables)
    assert code == 0, printed
    (found,) = results(tmp_path / "results", "environment")
    assert (found["server"], found["kit"]["commit"]) == ("forebay-server 9.9", manifest["commit"])
    (kit / "benches/gpu/landing.py").write_text("pass\n")
    code, steps, _ = check(tmp_path / "results", "--only", "environment", root=kit, **variables)
    assert (code, steps["environment"]["reason"].split(",")[0]) == (1, "benches/gpu/landing.py is missing")


def test_the_kit_requires_the_versions_of_the_demo():
    lines = [line for line in (GPU / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = (ROOT / "client/python/requirements/demo.txt").read_text().splitlines()
    assert [line for line in lines if line not in pinned] == ["nvidia-cuda-nvrtc==13.2.86"]
    assert len(lines) == 7


def test_a_kit_that_is_too_large_is_refused(tmp_path: Path):
    large = tmp_path / "large"
    large.write_bytes(os.urandom(2_000_000))
    large.chmod(0o755)
    packed = pack(tmp_path / "out", "--parity", large, "--limit-bytes", "2000000")
    assert packed.returncode == 1
    assert "more than 2,000,000" in packed.stderr
    assert not (tmp_path / "out/forebay-gpu-kit.tar.xz").exists()


def test_the_test_program_is_read_from_cargos_messages(tmp_path: Path):
    messages = [
        {"reason": "compiler-artifact", "executable": None},
        {"profile": {"test": True}, "executable": "/bin/true"},
    ]
    (tmp_path / "messages").write_text("\n".join(map(json.dumps, messages)))
    assert pack(tmp_path / "out", "--parity-messages", tmp_path / "messages").returncode == 0
    (tmp_path / "messages").write_text(json.dumps(messages[0]))
    assert "names no test program" in pack(tmp_path / "out", "--parity-messages", tmp_path / "messages").stderr
