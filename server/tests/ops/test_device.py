"""A server that computes on a GPU sends the same batches, and one that cannot use it computes them on the CPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon

PLAN = fb.Plan(
    filter="x IS NOT NULL",
    outputs={
        "dense": fb.cols("x", "gappy", "small").fill_null(0.5).clip(-0.5).log1p().standardize().clip(-3, 3),
        "half": fb.output(fb.cols("unit").min_max(), dtype="float16"),
        "word": fb.cols("word").vocab(),
        "hot": fb.output(fb.cols("small").bucketize([-3, 0, 3]).one_hot(), dtype="uint8"),
        "id": fb.output(fb.cols("id"), dtype="int64"),
    },
)


def epoch(daemon: Daemon, *, shuffle: bool) -> list[dict[str, np.ndarray]]:
    """Every batch of an epoch."""
    client = fb.connect(daemon.url)
    fitted = client.fit("tiny", PLAN)
    with client.stream("tiny", fitted, batch_size=16, shuffle=shuffle, seed=3) as batches:
        return [dict(batch) for batch in batches]


@pytest.mark.parametrize("shuffle", [False, True])
def test_gpu_batches_equal_cpu_batches(tiny_folder: Path, tmp_path: Path, shuffle: bool):
    common = (*LOOPBACK, "--dataset", f"tiny={tiny_folder}", "--state")
    gpu = Daemon(*common, str(tmp_path / "gpu"), "--device", "cuda:0")
    cpu = Daemon(*common, str(tmp_path / "cpu"))
    try:
        on_gpu, on_cpu = epoch(gpu, shuffle=shuffle), epoch(cpu, shuffle=shuffle)
        assert len(on_gpu) == len(on_cpu) == 7
        for one, other in zip(on_gpu, on_cpu, strict=True):
            assert one.keys() == other.keys()
            for name, values in other.items():
                np.testing.assert_array_equal(one[name], values, strict=True)
        reasons = [line for line in gpu.lines if "cannot use --device" in line]
    finally:
        gpu.stop()
        cpu.stop()
    if reasons:
        pytest.skip(f"computed on the CPU both times: {reasons[0].strip()}")


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def library(path: Path, code: int, more: str = "") -> None:
    """Write a library with the driver's first function, which returns this code, and more functions."""
    path.parent.mkdir()
    source = f"int cuInit(unsigned int flags) {{ (void)flags; return {code}; }}\n{more}\n"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", str(path), "-"]
    subprocess.run(command, input=source, text=True, check=True)


@pytest.mark.skipif(has_driver() or shutil.which("cc") is None, reason="needs a C compiler, and no driver")
def test_a_driver_that_cannot_be_used_is_named(tiny_folder: Path, tmp_path: Path):
    names = 'int cuGetErrorString(int code, const char **text) { (void)code; *text = "no device"; return 0; }'
    names += names.replace("String", "Name")
    library(tmp_path / "driver/libcuda.so.1", 100, names)
    library(tmp_path / "stubs/libcuda.so", 34)
    library(tmp_path / "old/libcuda.so.1", 0)
    (tmp_path / "linked").mkdir()
    for name in ("libcuda.so", "libcuda.so.1"):
        (tmp_path / "linked" / name).symlink_to(tmp_path / "driver/libcuda.so.1")
    common = (*LOOPBACK, "--dataset", f"tiny={tiny_folder}", "--device", "cuda:0", "--state")
    reasons = {
        "": "there is no CUDA driver on this machine (libcuda.so.1 cannot be loaded)",
        "driver": "the CUDA driver cannot start: ",
        "linked": "the CUDA driver cannot start: ",
        "old": "the CUDA driver is too old",
        "stubs:driver": '\\"libcuda.so\\" is found before the driver',
    }
    for number, (folders, reason) in enumerate(reasons.items()):
        path = ":".join(str(tmp_path / name) for name in folders.split(":") if name)
        daemon = Daemon(*common, str(tmp_path / f"state-{number}"), env={"LD_LIBRARY_PATH": path})
        try:
            warning = "cannot use --device cuda:0, computing on the CPU: " + reason
            assert any(warning in line for line in daemon.lines), (folders, daemon.lines)
            assert len(epoch(daemon, shuffle=True)) == 7
        finally:
            daemon.stop()
