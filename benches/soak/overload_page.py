"""Markdown report of an overload run, and the summary of each crowd's phases."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.benches.reporting import table

if TYPE_CHECKING:
    from overload import Case, Phase

COUNTS = ("sent", "refused", "admitted", "broken", "late")


def summarize(cases: Sequence[Case], phases: list[Phase]) -> list[dict[str, Any]]:
    """Return the rates, ratios and costs of each crowd."""
    return [_of_case(str(case), [phase for phase in phases if phase.case == str(case)]) for case in cases]


def _of_case(case: str, phases: list[Phase]) -> dict[str, Any]:
    rounds = sorted({phase.round for phase in phases})
    here, elsewhere, apart = list[float](), list[float](), list[float]()
    slowest, by_cpu = list[float](), list[float]()
    for number in rounds:
        of_round = [phase for phase in phases if phase.round == number]
        quiet, after = (phase for phase in of_round if phase.kind == "quiet")
        (crowded,) = (phase for phase in of_round if phase.kind == "crowd here")
        (control,) = (phase for phase in of_round if phase.kind == "crowd elsewhere")
        before = (quiet.rows_per_second + after.rows_per_second) / 2
        here.append(crowded.rows_per_second / before)
        elsewhere.append(control.rows_per_second / before)
        apart.append(crowded.rows_per_second / control.rows_per_second)
        cpu_before = (quiet.cpu["server"] + after.cpu["server"]) / 2
        by_cpu.append(crowded.rows_per_second / crowded.cpu["server"] / (before / cpu_before))
        streams = zip(quiet.stream_rows_per_second, after.stream_rows_per_second, strict=True)
        each = zip(crowded.stream_rows_per_second, streams, strict=True)
        slowest.append(min(during / ((one + two) / 2) for during, (one, two) in each))
    kinds = {kind: [phase for phase in phases if phase.kind == kind] for kind in ("crowd here", "crowd elsewhere")}
    idle = statistics.mean(phase.cpu["other"] for phase in phases if phase.kind == "quiet")
    refused = [
        (phase.cpu["other"] - idle) / (phase.crowd["refused"] / phase.crowd["seconds"])
        for phase in kinds["crowd elsewhere"]
        if phase.crowd["refused"]
    ]
    return {
        "case": case,
        "rows_per_second": {
            kind: round(statistics.median(phase.rows_per_second for phase in phases if phase.kind == kind))
            for kind in ("quiet", "crowd here", "crowd elsewhere")
        },
        "here_by_quiet": _spread(here),
        "elsewhere_by_quiet": _spread(elsewhere),
        "here_by_elsewhere": _spread(apart),
        "here_by_quiet_per_server_cpu": _spread(by_cpu),
        "slowest_stream_here_by_quiet": _spread(slowest),
        "crowd_cores": _spread([phase.crowd["cores"] for each in kinds.values() for phase in each]),
        "refusal_cpu_microseconds": _spread([each * 1e6 for each in refused]) if refused else None,
        "counts": {
            kind: {name: sum(phase.crowd[name] for phase in each) for name in COUNTS} for kind, each in kinds.items()
        },
        "latency_ms": {
            kind: {
                name: statistics.median(phase.crowd["latency_ms"][name] for phase in each if phase.crowd["latency_ms"])
                for name in ("p50", "p90", "p99", "max")
            }
            for kind, each in kinds.items()
            if any(phase.crowd["latency_ms"] for phase in each)
        },
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
    }


def holds(run: dict[str, Any]) -> bool:
    """Return whether every request was refused as promised and the running streams kept their rate."""
    kept = all(case["here_by_quiet"]["median"] >= run["goal"] for case in run["cases"])
    clean = all(
        counts["admitted"] == counts["broken"] == 0 for case in run["cases"] for counts in case["counts"].values()
    )
    promised = all(refusal["as_promised"] for refusal in run["refusals"].values())
    return kept and clean and promised and not run["running_streams_that_ended"]


def page(run: dict[str, Any]) -> str:
    """Return the whole report."""
    facts = "\n".join(f"- {key}: {value}" for key, value in run["machine"].items())
    introduction = (
        f"{run['streams']} streams at full speed, and a crowd that requests more: `{' '.join(run['limit'])}`. Server, "
        "readers and crowd share the cores. Method: [benches/soak](../../soak/README.md); every phase: "
        "[overload.json](overload.json)."
    )
    return "\n\n".join(["# A crowd beyond the limit", introduction, body(run), "## Machine", facts]) + "\n"


def body(run: dict[str, Any]) -> str:
    """Return the tables."""
    refusal = run["refusals"]["server"]
    hints = [f"`{name}: {value}`" for name, value in refusal["hints"].items()]
    hints += ["a `google.rpc.RetryInfo`"] * refusal["has_retry_info"]
    example = f'A refusal: {refusal["code"]}, with {" and ".join(hints) or "no hint"}: "{refusal["message"]}"'
    ended = run["running_streams_that_ended"]
    return "\n\n".join(
        [
            _rates(run),
            _crowds(run),
            example,
            f"Running streams that ended: {ended or 'none'}. Other processes used "
            f"{run['noise']['others_share']:.0%} of the machine's CPU seconds during the run.",
        ]
    )


def _rates(run: dict[str, Any]) -> str:
    titles = [
        "crowd", "quiet, k rows/s", "here by quiet", f"at least {run['goal']}", "elsewhere by quiet",
        "here by elsewhere", "slowest stream, here by quiet", "rows per CPU second of the server, here by quiet",
        "the crowd's cores",
    ]  # fmt: skip
    rows = [
        [
            case["case"],
            f"{case['rows_per_second']['quiet'] / 1e3:,.0f}",
            _show(case["here_by_quiet"]),
            "yes" if case["here_by_quiet"]["median"] >= run["goal"] else "NO",
            _show(case["elsewhere_by_quiet"]),
            _show(case["here_by_elsewhere"]),
            _show(case["slowest_stream_here_by_quiet"]),
            _show(case["here_by_quiet_per_server_cpu"]),
            f"{case['crowd_cores']['median']:.3f}",
        ]
        for case in run["cases"]
    ]
    return f"{table(titles, rows)}\n\nMedians over the rounds, with minimum and maximum."


def _crowds(run: dict[str, Any]) -> str:
    titles = [
        "crowd",
        "where",
        "sent",
        "refused",
        "admitted",
        "broken",
        "p50, ms",
        "p99, ms",
        "max, ms",
        "server CPU, µs each",
    ]
    rows: list[list[str]] = []
    for case in run["cases"]:
        calm = run["before_any_stream_ran"][case["case"]]
        rows.append(_crowd(case["case"], "elsewhere, no stream running", calm, calm["latency_ms"], ""))
        for kind, counts in case["counts"].items():
            latency = case["latency_ms"].get(kind, {})
            cost = case["refusal_cpu_microseconds"]
            each = f"{cost['median']:,.0f}" if cost and kind == "crowd elsewhere" else ""
            rows.append(_crowd(case["case"], kind.removeprefix("crowd "), counts, latency, each))
    return table(titles, rows)


def _crowd(case: str, where: str, counts: dict[str, Any], latency: dict[str, float], cost: str) -> list[str]:
    cells = (f"{counts[name]:,}" for name in ("sent", "refused", "admitted", "broken"))
    return [case, where, *cells, *(f"{latency[name]:,.2f}" if latency else "" for name in ("p50", "p99", "max")), cost]


def _show(spread: dict[str, float]) -> str:
    return f"{spread['median']:.3f} ({spread['min']:.3f} to {spread['max']:.3f})"
