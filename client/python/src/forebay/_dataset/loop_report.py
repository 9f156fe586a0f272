"""The statistics of a dataset's loops."""

from __future__ import annotations

from dataclasses import asdict

from forebay._client.stages import bound_by

from .iteration import Totals


def loop_report(totals: Totals, lanes: int) -> dict[str, float | str]:
    """Return totals as plain values, with the bottleneck of loops whose rank reads `lanes` lanes."""
    verdict, because = bound_by(
        totals.stages,
        loop_seconds=totals.loop_seconds - totals.first_wait_seconds,
        wait_seconds=totals.wait_seconds - totals.first_wait_seconds,
        lanes=lanes,
    )
    return {
        "batches": totals.batches,
        "rows": totals.rows,
        "bytes": totals.bytes,
        "loop_seconds": totals.loop_seconds,
        "wait_seconds": totals.wait_seconds,
        "first_wait_seconds": totals.first_wait_seconds,
        "longest_wait_seconds": totals.longest_wait_seconds,
        "boundary_wait_seconds": totals.boundary_wait_seconds,
        **{f"{name}_seconds": seconds for name, seconds in asdict(totals.stages).items()},
        "bound_by": verdict,
        "because": because,
        "padding": totals.padding / totals.padded if totals.padded else 0.0,
        "transport": totals.transport,
    }
