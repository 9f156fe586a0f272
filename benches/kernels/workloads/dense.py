"""Dense part of a click log: fill, log1p, standardize and clip of 13 float32 columns with nulls into one matrix."""

from __future__ import annotations

import numpy as np

from columns import Array, aligned, arrow
from rounds import Goal, Peer, Workload
from runner import Output, Runner, chain, output
from workloads import check

ROWS = 1_000_000
COLUMNS = 13
NULL_SHARE_MAX = 0.15
BATCH_ROWS = 65_536
BOUND = 3.0
BLOCK_ROWS = 8_192


class Dense:
    """The columns, including values under nulls, and their statistics."""

    def __init__(self, runner: Runner, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.values: list[Array] = []
        self.valid: list[Array] = []
        self.means: list[float] = []
        self.stds: list[float] = []
        for number in range(COLUMNS):
            values = aligned(np.exp(generator.uniform(-3.0, 5.0, ROWS)).astype(np.float32))
            valid = aligned(generator.random(ROWS) >= NULL_SHARE_MAX * number / (COLUMNS - 1))
            logs = np.log1p(np.where(valid, values, 0).astype(np.float64))
            self.values.append(values)
            self.valid.append(valid)
            self.means.append(float(logs.mean()))
            self.stds.append(float(logs.std()))
        columns = {
            f"c{number}": arrow(values, valid if number else None)
            for number, (values, valid) in enumerate(zip(self.values, self.valid, strict=True))
        }
        runner.load("dense", columns)

    def plan(self) -> Output:
        """Return the output as a request."""
        return output(
            "FLOAT32",
            [
                chain(
                    f"c{number}",
                    {"fill_null": {"value": 0.0}},
                    {"log1p": {}},
                    {"standardize": {"mean": mean, "std": std}},
                    {"clip": {"min": -BOUND, "max": BOUND}},
                )
                for number, (mean, std) in enumerate(zip(self.means, self.stds, strict=True))
            ],
        )

    def column_by_column(self) -> Array:
        """Run NumPy over whole columns, in place if possible."""
        out, work = np.empty((ROWS, COLUMNS), np.float32), np.empty(ROWS, np.float32)
        for number in range(COLUMNS):
            self._column(number, slice(None), work, out)
        return out

    def block_by_block(self) -> Array:
        """Run NumPy over blocks of rows that stay in the cache."""
        out, work = np.empty((ROWS, COLUMNS), np.float32), np.empty(BLOCK_ROWS, np.float32)
        for start in range(0, ROWS, BLOCK_ROWS):
            end = min(ROWS, start + BLOCK_ROWS)
            for number in range(COLUMNS):
                self._column(number, slice(start, end), work[: end - start], out)
        return out

    def _column(self, number: int, rows: slice, work: Array, out: Array) -> None:
        # Multiplying by the mask would keep NaN and is not faster.
        if number:
            work.fill(0)
            np.copyto(work, self.values[number][rows], where=self.valid[number][rows])
            np.log1p(work, out=work)
        else:
            np.log1p(self.values[number][rows], out=work)
        work -= np.float32(self.means[number])
        work /= np.float32(self.stds[number])
        np.clip(work, np.float32(-BOUND), np.float32(BOUND), out=out[rows, number])

    def exact(self) -> Array:
        """Return the result in float64."""
        logs = [np.log1p(np.where(valid, v, 0).astype("f8")) for v, valid in zip(self.values, self.valid, strict=True)]
        scaled = [(log - mean) / std for log, mean, std in zip(logs, self.means, self.stds, strict=True)]
        return np.clip(np.column_stack(scaled), -BOUND, BOUND)


def dense(runner: Runner, seed: int) -> Workload:
    """Prepare the workload."""
    data = Dense(runner, seed)
    forebay = [
        runner.prepare(f"Forebay, batches of {BATCH_ROWS:,} rows", "dense", data.plan(), batch_rows=BATCH_ROWS),
        runner.prepare("Forebay, batches of 8,192 rows", "dense", data.plan(), batch_rows=8_192),
        runner.prepare("Forebay, one batch", "dense", data.plan(), batch_rows=ROWS),
    ]
    peers = [
        Peer("NumPy, column by column", data.column_by_column),
        Peer(f"NumPy, in blocks of {BLOCK_ROWS:,} rows", data.block_by_block),
    ]
    exact = data.exact()
    checks = [check.close(each.name, each.result(), exact, 1e-6) for each in forebay]
    checks += [check.close(each.name, each.do(), exact, 1e-6) for each in peers]
    title = f"fill 0 + log1p + standardize + clip of {COLUMNS} float32 columns of {ROWS:,} rows, 0-15 % null"
    return Workload("dense", title, ROWS, [*forebay, *peers], [Goal(peers[0].name, 8)], checks)
