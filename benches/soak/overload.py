"""Cost that refusing streams beyond a server's limit has for the streams that run.

A run is kept under benches/runs/<date>-<arch>-<cores>-cores/ as overload.md and overload.json, or where --out says. The
exit code is 1 if a stream beyond the limit was not refused, or if running streams fell below the goal.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import overload_page
from harness import http2_peer as http2
from harness.benches import bench_server, criteo, machine
from harness.benches.noise import Noise
from harness.benches.reporting import say
from harness.http2_peer import Peer
from refusal import Refusal, read_refusal
from replica import Replica, cpu_seconds
from truth import ticket
from visit import connect

HERE = Path(__file__).resolve().parent
STREAMS_MAX = "--streams-max"
MEMORY_LIMIT = "--memory-limit-bytes"
STREAMS = 4
BATCH_SIZE = 8192
SHAPE = criteo.Shape(files=1, rows_per_file=500_000)
# Hard links to one file: streams that outlast the run, from data that stays in the file cache.
LINKS = 800
# Margins after the crowd starts and before it ends, within which the running streams are measured.
LEAD_SECONDS, TAIL_SECONDS = 0.7, 0.3
QUIET, HERE_TOO, ELSEWHERE = "quiet", "crowd here", "crowd elsewhere"
# The command of the crowds alternates from round to round.
ROUNDS = ((QUIET, HERE_TOO, QUIET, ELSEWHERE), (QUIET, ELSEWHERE, QUIET, HERE_TOO))
GOAL = 0.9


@dataclass(frozen=True)
class Case:
    """A crowd: requests per second, and whether each uses a new connection."""

    rate: float
    how: str

    def __str__(self) -> str:
        return f"{self.rate:g}/s, " + ("a connection each" if self.how == "clients" else "over 8 connections")


@dataclass
class Phase:
    """Measurements of one phase."""

    case: str
    round: int
    kind: str
    seconds: float
    rows_per_second: float
    stream_rows_per_second: list[float]
    cpu: dict[str, float]
    """Cores used by each process: server, other (the idle server), readers, crowd."""
    crowd: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    """Measure, print and write the run."""
    options = parse()
    program = (options.bin or bench_server.server_program()).absolute()
    help_text = subprocess.run([str(program), "--help"], check=True, capture_output=True, text=True).stdout
    if options.limit not in help_text:
        raise SystemExit(f"{program.name} has no {options.limit}: use a newer program or --limit {MEMORY_LIMIT}")
    made_on = machine.facts(program)
    noise = Noise()
    cases = [Case(rate, "streams") for rate in options.rates]
    cases += [Case(rate, "clients") for rate in options.client_rates]
    with tempfile.TemporaryDirectory(prefix="forebay-overload-") as scratch:
        copy = Path(shutil.copy2(program, scratch))
        with servers(copy, Path(scratch), options.limit) as (server, other, plan_id, flags):
            phases, calm, refusals, ended = measure(server, other, plan_id, cases, options.rounds, options.seconds)
    summary = overload_page.summarize(cases, phases)
    run = {
        "bench": "overload",
        "machine": made_on,
        "command": " ".join(["benches/soak/overload.py", *_arguments(options)]),
        "limit": flags,
        "streams": STREAMS,
        "batch_size": BATCH_SIZE,
        "noise": noise.look(),
        "refusals": {
            name: {**asdict(refusal), "as_promised": refusal.is_as_promised} for name, refusal in refusals.items()
        },
        "running_streams_that_ended": ended,
        "goal": GOAL,
        "cases": summary,
        "before_any_stream_ran": calm,
        "phases": [asdict(phase) for phase in phases],
    }
    folder = options.out or machine.run_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overload.md").write_text(overload_page.page(run))
    machine.keep(folder / "overload.json", run)
    print(overload_page.body(run))
    sys.exit(0 if overload_page.holds(run) else 1)


@contextmanager
def servers(program: Path, scratch: Path, limit: str) -> Generator[tuple[Replica, Replica, str, list[str]], None, None]:
    """Start the server of the running streams, and another at the same limit with idle streams."""
    say("data")
    (file,) = criteo.generate(scratch / "one", SHAPE)
    (scratch / "many").mkdir()
    for number in range(LINKS):
        os.link(file, scratch / "many" / f"{number:04}.parquet")
    datasets = {"one": str(scratch / "one"), "many": str(scratch / "many")}
    # Without keepalive pings, so that the idle streams stay open.
    always = ("--keepalive-seconds", "0", "--drain-seconds", "0")
    with ExitStack() as stack:
        first = Replica("first", program, datasets, scratch / "state", *always)
        stack.callback(first.stop)
        first.start()
        plan_id, memory_bytes = _fit(first)
        first.stop()
        flags = [limit, str(STREAMS if limit == STREAMS_MAX else STREAMS * memory_bytes)]
        pair = [Replica(name, program, datasets, scratch / "state", *always, *flags) for name in ("server", "other")]
        for replica in pair:
            stack.callback(replica.stop)
            replica.start()
        yield pair[0], pair[1], plan_id, flags


def _fit(replica: Replica) -> tuple[str, int]:
    """Fit the plan to one file; return its id and the memory that a stream of it reserves."""
    import forebay as fb

    with fb.connect(replica.url) as client:
        fitted = client.fit("one", fb.Plan.from_dict(criteo.plan()), progress=False)
        return fitted.plan_id, client.explain("many", fitted, batch_size=BATCH_SIZE).memory_bytes


class Process:
    """A process that answers each line of JSON with one line."""

    def __init__(self, name: str) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / name)], stdin=pipe, stdout=pipe, text=True, bufsize=1
        )
        self.pid = self._process.pid

    def send(self, command: object) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")

    def receive(self) -> str:
        """Wait for the answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a process of the bench exited")
        return line

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()


def measure(
    server: Replica, other: Replica, plan_id: str, cases: list[Case], rounds: int, seconds: float
) -> tuple[list[Phase], dict[str, dict[str, Any]], dict[str, Refusal], list[str]]:
    """Run all phases; return them, the crowds without running streams, the refusals, and streams that ended."""
    request = {"dataset": "many", "plan_id": plan_id, "batch_size": BATCH_SIZE}
    tickets: dict[str, bytes] = {}
    for replica in (server, other):
        with connect(replica.url) as client:
            tickets[replica.name] = ticket(client, request).ticket
    phases: list[Phase] = []
    with ExitStack() as stack:
        idle = stack.enter_context(Peer(other.url, window=0))
        idle.send(b"".join(http2.do_get(2 * n + 1, tickets[other.name]) for n in range(STREAMS)))
        _wait_until_full(other)
        crowd = Process("refused_clients.py")
        stack.callback(crowd.end)
        calm = {str(case): _alone(crowd, _command(other, tickets[other.name], case, seconds)) for case in cases}
        readers = Process("running.py")
        stack.callback(readers.end)
        readers.send({"url": server.url, "requests": [request] * STREAMS})
        readers.receive()
        say("running")
        refusals = {each.name: read_refusal(each.url, tickets[each.name]) for each in (server, other)}
        # Let readers and file caches reach a steady state.
        time.sleep(3)
        pids = {"server": server.pid or 0, "other": other.pid or 0, "readers": readers.pid, "crowd": crowd.pid}
        for number in range(rounds):
            for case in cases:
                for kind in ROUNDS[number % 2]:
                    at = server if kind == HERE_TOO else other
                    command = None if kind == QUIET else _command(at, tickets[at.name], case, seconds)
                    phases.append(_phase(str(case), number, kind, seconds, readers, crowd, command, pids))
                say(f"round {number + 1}, {case}: " + _rates(phases[-len(ROUNDS[0]) :]))
        readers.send({})
        ended = json.loads(readers.receive())["ended"]
    return phases, calm, refusals, ended


def _command(at: Replica, ticket: bytes, case: Case, seconds: float) -> dict[str, Any]:
    return {"url": at.url, "ticket": base64.b64encode(ticket).decode(), **asdict(case), "seconds": seconds}


def _alone(crowd: Process, command: dict[str, Any]) -> dict[str, Any]:
    """Run the crowd while no stream runs."""
    crowd.send(command)
    return _result(crowd)


def _result(crowd: Process) -> dict[str, Any]:
    """Wait for the crowd's result and summarize it."""
    found = json.loads(crowd.receive())
    found["latency_ms"] = _percentiles(found["latency_ms"])
    found["cores"] = round(found.pop("cpu_seconds") / found["seconds"], 4)
    found["seconds"] = round(found["seconds"], 3)
    return found


def _phase(
    case: str,
    number: int,
    kind: str,
    seconds: float,
    readers: Process,
    crowd: Process,
    command: dict[str, Any] | None,
    pids: dict[str, int],
) -> Phase:
    if command is not None:
        crowd.send(command)
    time.sleep(LEAD_SECONDS)
    before, cpu_before = _progress(readers), {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds - LEAD_SECONDS - TAIL_SECONDS)
    after, cpu_after = _progress(readers), {name: cpu_seconds(pid) for name, pid in pids.items()}
    passed = after["time"] - before["time"]
    each = [(late - early) / passed for early, late in zip(before["rows"], after["rows"], strict=True)]
    cpu = {name: round((cpu_after[name] - cpu_before[name]) / passed, 4) for name in pids}
    found: dict[str, Any] = {}
    if command is not None:
        found = _result(crowd)
    else:
        time.sleep(TAIL_SECONDS)
    rounded = [round(rate) for rate in each]
    return Phase(case, number, kind, round(passed, 3), round(sum(each)), rounded, cpu, found)


def _progress(readers: Process) -> dict[str, Any]:
    readers.send({})
    return json.loads(readers.receive())


def _percentiles(milliseconds: list[float]) -> dict[str, float]:
    if not milliseconds:
        return {}
    last = len(milliseconds) - 1
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: milliseconds[round(last * part)] for name, part in parts.items()}


def _wait_until_full(replica: Replica) -> None:
    """Wait until the idle streams are open and have computed their batches ahead."""
    before, pid = -1.0, replica.pid or 0
    for _ in range(120):
        sample = replica.sample()
        now = cpu_seconds(pid)
        if sample is not None and sample.streams_active >= STREAMS and now - before < 0.05:
            return
        before = now
        time.sleep(1)
    raise SystemExit("the idle streams do not open")


def _rates(phases: list[Phase]) -> str:
    def rate(kind: str) -> float:
        return statistics.mean(phase.rows_per_second for phase in phases if phase.kind == kind)

    return ", ".join(f"{kind} {rate(kind) / 1e3:,.0f} k rows/s" for kind in (QUIET, HERE_TOO, ELSEWHERE))


def _arguments(options: argparse.Namespace) -> list[str]:
    rates = ["--rates", *(f"{rate:g}" for rate in options.rates)]
    rates += ["--client-rates", *(f"{rate:g}" for rate in options.client_rates)]
    return [*rates, "--rounds", str(options.rounds), "--seconds", f"{options.seconds:g}", "--limit", options.limit]


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rates",
        type=float,
        nargs="*",
        default=[200, 1000],
        help="requests per second over 8 connections (%(default)s)",
    )
    parser.add_argument(
        "--client-rates",
        type=float,
        nargs="*",
        default=[200],
        help="the same over new connections (%(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=6, help="rounds (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="seconds per phase (%(default)s)")
    parser.add_argument(
        "--limit",
        metavar="FLAG",
        default=STREAMS_MAX,
        choices=(STREAMS_MAX, MEMORY_LIMIT),
        help="limit to exceed (%(default)s)",
    )
    parser.add_argument(
        "--bin", type=Path, help="server program [default: FOREBAY_SERVER_BIN, else this checkout's release build]"
    )
    parser.add_argument("--out", type=Path, help="folder for the results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
