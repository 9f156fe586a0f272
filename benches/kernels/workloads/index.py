"""Index ops compared with NumPy, for information: one_hot and bucketize have no goals."""

from __future__ import annotations

import numpy as np

from columns import aligned, arrow
from rounds import Peer, Workload
from runner import Runner, chain, output
from workloads import check

ONE_HOT_ROWS = 65_536
ONE_HOT_SIZE = 1_000
BUCKETIZE_ROWS = 4_000_000
BOUNDARIES = 100


def one_hot(runner: Runner, seed: int) -> Workload:
    """Prepare the workload."""
    indices = aligned(np.random.default_rng(seed).integers(0, ONE_HOT_SIZE, ONE_HOT_ROWS))
    runner.load("one-hot", {"index": arrow(indices)})
    plan = output("FLOAT32", [chain("index", {"one_hot": {"size": ONE_HOT_SIZE}})])
    forebay = [
        runner.prepare("Forebay, batches of 8,192 rows", "one-hot", plan, batch_rows=8_192),
        runner.prepare("Forebay, one batch", "one-hot", plan, batch_rows=ONE_HOT_ROWS),
    ]
    eye = np.eye(ONE_HOT_SIZE, dtype=np.float32)
    peer = Peer("NumPy, rows of eye", lambda: eye.take(indices, axis=0))
    checks = [check.equal(each.name, each.result(), peer.do()) for each in forebay]
    title = f"one_hot of {ONE_HOT_SIZE:,} on {ONE_HOT_ROWS:,} int64 into float32"
    return Workload("one-hot", title, ONE_HOT_ROWS, [*forebay, peer], [], checks)


def bucketize(runner: Runner, seed: int) -> Workload:
    """Prepare the workload."""
    generator = np.random.default_rng(seed)
    values = aligned(generator.normal(size=BUCKETIZE_ROWS))
    boundaries = np.sort(generator.normal(size=BOUNDARIES))
    runner.load("bucketize", {"x": arrow(values)})
    plan = output("INT64", [chain("x", {"bucketize": {"boundaries": boundaries.tolist()}})])
    forebay = [
        runner.prepare("Forebay, batches of 65,536 rows", "bucketize", plan, batch_rows=65_536),
        runner.prepare("Forebay, one batch", "bucketize", plan, batch_rows=BUCKETIZE_ROWS),
    ]
    peer = Peer("NumPy digitize", lambda: np.digitize(values, boundaries))
    checks = [check.equal(each.name, each.result(), peer.do()) for each in forebay]
    title = f"bucketize by {BOUNDARIES} boundaries of {BUCKETIZE_ROWS:,} float64 into int64"
    return Workload("bucketize", title, BUCKETIZE_ROWS, [*forebay, peer], [], checks)
