"""A server that computes on a GPU sends the same batches; skipped without a GPU."""

from __future__ import annotations

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
