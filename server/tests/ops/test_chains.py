"""Random chains of ops match NumPy bit for bit, for every stored type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay as fb
from harness.ops.conformance import OPS, Drawn, Step, on_values
from harness.ops.oracles import bounded
from harness.ops.tables import domain, features, nulls, numbers, same_bits, write
from harness.serving import Serve

CHAINS = 60
LONGEST = 8
ROWS = 4999
FILL = 7.0
TABLE = numbers(ROWS, seed=77)
ARRAYS: dict[str, pa.Array[Any]] = {name: TABLE[name].combine_chunks() for name in TABLE.column_names}

STEPS = {name: op.step for name, op in OPS.items() if op.step}


def draw(random: np.random.Generator) -> Step:
    """One op with parameters, and what it does to values and nulls."""
    a, b = np.sort(random.choice([random.normal(0, 10, 2), random.integers(-20, 20, 2).astype(float)])).tolist()
    drawn = Drawn(
        low=a,
        high=b if a < b else a + 1.0,
        whole=int(random.integers(1, 2**20)),
        edges=np.sort(random.normal(0, 20, random.integers(1, 40))).tolist(),
        fill=float(random.choice([0.0, 3.0, -1.0, 0.25, np.nan])),
    )
    return [*STEPS.values()][random.integers(len(STEPS))](drawn)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    folder = tmp_path_factory.mktemp("chains") / "numbers"
    write(folder, TABLE)
    with fb.connect(serve({"numbers": folder}).url) as connected:
        yield connected


LARGEST = 2.0**24
KEEP = on_values(lambda c: c.clip(-LARGEST, LARGEST), lambda x: bounded(x, -LARGEST, LARGEST))


@pytest.mark.parametrize("seed", range(CHAINS))
def test_any_chain_matches_numpy(client: fb.Client, seed: int):
    random = np.random.default_rng(seed)
    drawn = [draw(random) for _ in range(random.integers(2, LONGEST + 1))]
    outputs: dict[str, fb.Output] = {}
    steps: dict[str, list[Step]] = {}
    for name, array in ARRAYS.items():
        chain = fb.cols(name)
        for op, _ in drawn:
            chain = op(chain)
        # A value may still be an integer of the column, which float32 may not hold.
        is_kept = domain(array).dtype.kind != "f" and not any(OPS[op.name].fits_float32 for op in chain.ops)
        steps[name] = [*drawn, KEEP] if is_kept else drawn
        chain = KEEP[0](chain) if is_kept else chain
        outputs[name] = fb.output(chain.fill_null(FILL), dtype="float32")
    got = features(client, "numbers", outputs, batch_size=1777)
    for name, array in ARRAYS.items():
        state = domain(array), nulls(array)
        with np.errstate(all="ignore"):
            for _, oracle in steps[name]:
                state = oracle(state)
            want = np.where(state[1], np.float32(FILL), state[0].astype(np.float32))
        ops = outputs[name].parts[0].ops
        same_bits(got[name], want, f"{name} through {[op.to_dict() | {'op': op.name} for op in ops]}")
