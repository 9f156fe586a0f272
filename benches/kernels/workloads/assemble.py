"""Assembly of 100 float32 columns into a row-major matrix."""

from __future__ import annotations

import numpy as np

from columns import Array, aligned, arrow
from rounds import Goal, Peer, Workload
from runner import Runner, RunnerCopy, chain, output
from workloads import check

ROWS = 262_144
COLUMNS = 100
BATCH_ROWS = 8_192


def assemble(runner: Runner, seed: int) -> Workload:
    """Prepare the workload."""
    generator = np.random.default_rng(seed)
    columns = [aligned(generator.random(ROWS, np.float32)) for _ in range(COLUMNS)]
    runner.load("assemble", {f"c{number}": arrow(values) for number, values in enumerate(columns)})
    plan = output("FLOAT32", [chain(f"c{number}") for number in range(COLUMNS)])
    forebay = [
        runner.prepare(f"Forebay, batches of {BATCH_ROWS:,} rows", "assemble", plan, batch_rows=BATCH_ROWS),
        runner.prepare("Forebay, batches of 65,536 rows", "assemble", plan, batch_rows=65_536),
        runner.prepare("Forebay, one batch", "assemble", plan, batch_rows=ROWS),
    ]
    given, copied = np.ones((ROWS, COLUMNS), np.float32), np.ones((ROWS, COLUMNS), np.float32)
    memcpy = Peer("memcpy of the same bytes", lambda: np.copyto(copied, given))
    chunk = np.ones((BATCH_ROWS, COLUMNS), np.float32)

    def copy_chunks() -> None:
        for start in range(0, ROWS, BATCH_ROWS):
            np.copyto(chunk, given[start : start + BATCH_ROWS])

    out = np.ones((ROWS, COLUMNS), np.float32)

    def stack() -> Array:
        return np.stack(columns, axis=1, out=out)

    peers = [
        Peer("NumPy column_stack", lambda: np.column_stack(columns)),
        Peer("NumPy stack into existing memory", stack),
    ]
    expected = np.column_stack(columns)
    checks = [check.equal(each.name, each.result(), expected) for each in forebay]
    checks += [check.equal(each.name, each.do(), expected) for each in peers]
    others = [
        memcpy,
        RunnerCopy(runner, "memcpy of the same bytes, in Forebay's process", "assemble"),
        Peer(f"memcpy of each {BATCH_ROWS:,} rows to one place", copy_chunks),
    ]
    title = f"assemble {COLUMNS} float32 columns of {ROWS:,} rows into [n, {COLUMNS}]"
    return Workload("assemble", title, ROWS, [*forebay, *others, *peers], [Goal(memcpy.name, 0.6)], checks)
