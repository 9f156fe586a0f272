"""The example `gpu_landing`: a GPU's batches equal the CPU's, and where there is no GPU the example says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from harness.examples import example_module, run_example

landing = example_module("gpu_landing")


def test_batches_equal_the_cpus_and_what_did_not_run_is_named(tmp_path: Path):
    *_, features, batches, equal, skipped = run_example("gpu_landing.py", "--data", tmp_path).splitlines()
    assert equal == "263,149 rows in 65 batches, 6 columns: equal to the CPU's to the bit"
    on_cpu = []
    if features.startswith("features with --device cuda:0: on the CPU: "):
        on_cpu.append("kernels")
    if torch.cuda.is_available():
        assert batches == f'batches with device="cuda": on {torch.cuda.get_device_name()}'
    else:
        assert batches == 'batches with device="cuda": on the CPU: torch.cuda.is_available() is False'
        on_cpu.append("copies")
    assert skipped == f"not run on a GPU: {', '.join(on_cpu) or 'nothing'}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")
def test_a_required_gpu_that_is_missing_fails_the_example(tmp_path: Path):
    with pytest.raises(AssertionError, match="--require-gpu: no GPU ran the above"):
        run_example("gpu_landing.py", "--data", tmp_path, "--require-gpu")


def line(**fields: str) -> str:
    return json.dumps({"level": "INFO", "fields": fields})


OPENED = line(message="computing on cuda:0", gpu="H100")


@pytest.mark.parametrize(
    ("log", "used"),
    [
        ([], "the CPU: the server did not log a device"),
        (["not JSON", OPENED], "H100"),
        ([OPENED, line(message="outputs by device", gpu='["a"]', cpu="[]")], "H100"),
        ([OPENED, line(message="outputs by device", gpu='["a"]', cpu='["b"]')], 'H100 (the CPU ran ["b"])'),
        ([OPENED, line(message="cannot load the plan on the GPU, computing on the CPU")], "the CPU: cannot load"),
        ([line(message="cannot use --device cuda:0, computing on the CPU: no driver")], "the CPU: no driver"),
    ],
)
def test_where_a_server_computed_is_read_from_its_log(log: list[str], used: str):
    assert str(landing.computing_place(log)).startswith(used)


def test_a_batch_that_differs_fails_the_example():
    expected = [{"x": torch.tensor([0.0, 1.0]), "y": torch.tensor([1])}]
    landing.check_equal([dict(expected[0])], expected, on_gpu=False)
    for found, message in (
        ([], "0 batches instead of 1"),
        ([{"x": expected[0]["x"]}], "columns"),
        # Equal as numbers, not as bits.
        ([{**expected[0], "x": torch.tensor([-0.0, 1.0])}], "batch 0: x differs"),
        ([{**expected[0], "y": torch.tensor([1], dtype=torch.int32)}], "batch 0: y differs"),
    ):
        with pytest.raises(SystemExit, match=message):
            landing.check_equal(found, expected, on_gpu=False)
    with pytest.raises(SystemExit, match="batch 0: x is on cpu"):
        landing.check_equal(expected, expected, on_gpu=True)
