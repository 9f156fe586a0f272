"""Load two replicas and inject faults; check every byte received and the resources that the servers hold.

A run of ten minutes or more is kept under benches/runs/<date>-<arch>-<cores>-cores/ as soak.md and soak.json; a shorter
one does not judge memory and is kept only with --out. The exit code is 1 if a criterion fails.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pages
import specs
import tables
import verdicts
from harness.benches import bench_server, machine
from harness.benches.noise import Noise
from harness.benches.reporting import say
from harness.fault_proxy import FaultProxy
from harness.proxy import Proxy
from harness.web_server import Files, WebServer
from hostile_clients import hostile_clients
from outages import DRAIN_SECONDS, WEB_FILE, Crowd, Outages
from pace import Governor
from readers import read_through
from replica import Replica, Sample
from tally import Tally, total
from truth import Truth, learn, ticket
from verdicts import Verdict
from visit import Follower, Load, Scene, connect
from watch import COLUMNS, Watch, settle

CORES = 1.0
FLAGS = ("--memory-limit-bytes", str(1 << 30), "--keepalive-seconds", "5", "--drain-seconds", str(DRAIN_SECONDS))
STEADY, RESTARTED = "a (runs throughout)", "b (killed and drained)"
# Idle connections to a store are kept for 90 s and purged at that interval; a silent client is dropped after 25 s.
SETTLE_SECONDS = 200.0
# Time to sample idle servers before the first client. In a short run a connection to the store may still be open.
IDLE_SECONDS, STORE_IDLE_SECONDS = 4.0, 100.0
LONG_SECONDS = 600.0
FINISH_SECONDS = 60.0


@dataclass
class Stage:
    """Everything that a run needs except the load."""

    replicas: list[Replica]
    truth: Truth
    truth_path: Path
    store: FaultProxy
    proxy: Proxy
    idle: dict[str, Sample]


def main() -> None:
    """Soak, print the report and write it."""
    options = parse()
    program = (options.bin or bench_server.server_program()).absolute()
    made_on = machine.facts(program)
    noise = Noise()
    is_long = 60 * options.minutes >= LONG_SECONDS
    with tempfile.TemporaryDirectory(prefix="forebay-soak-") as scratch, ExitStack() as stack:
        # A copy, so that a build during the run does not change the measured program.
        copy = Path(shutil.copy2(program, scratch))
        stage = stack.enter_context(set_up(copy, Path(scratch), STORE_IDLE_SECONDS if is_long else IDLE_SECONDS))
        found = soak(stage, options.minutes, options.cores)
    run, judged = found
    run = {
        "bench": "soak",
        "machine": made_on,
        "command": f"benches/soak/run.py --minutes {options.minutes:g} --cores {options.cores:g}",
        "server_flags": list(FLAGS),
        "minutes": options.minutes,
        "noise": noise.look(),
        "verdicts": [one.as_json() for one in judged],
        **run,
    }
    folder = options.out or (machine.run_folder() if is_long else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "soak.md").write_text(pages.page(run, judged))
        machine.keep(folder / "soak.json", run)
    print(pages.body(run, judged))
    sys.exit(0 if all(one.holds is not False for one in judged) else 1)


@contextmanager
def set_up(program: Path, scratch: Path, idle_seconds: float) -> Generator[Stage, None, None]:
    """Create data and expected results, start the replicas, and sample them while idle."""
    say("data")
    data = tables.make(scratch / "data")
    state, truth_path = scratch / "state", scratch / "truth"
    handler = type("WebFiles", (Files,), {"files": {f"/{WEB_FILE}": data.web}})
    with WebServer(handler) as web, FaultProxy(web) as store, ExitStack() as stack:
        say("expected results")
        healthy = {**{name: str(path) for name, path in data.healthy.items()}, "web": f"{web}/{WEB_FILE}"}
        source = Replica("truth", program, healthy, state, *FLAGS)
        stack.callback(source.stop)
        source.start()
        truth = learn(source.url)
        source.stop()
        truth.save(truth_path)
        served = {**{name: str(path) for name, path in data.local.items()}, "web": f"{store.url}/{WEB_FILE}"}
        replicas = [Replica(name, program, served, state, *FLAGS) for name in (STEADY, RESTARTED)]
        for replica in replicas:
            stack.callback(replica.stop)
            replica.start()
        proxy = stack.enter_context(Proxy(replicas[0].url))
        for replica in replicas:
            warm_up(replica, truth)
        say("idle samples")
        idle = sample_idle(replicas, idle_seconds)
        yield Stage(replicas, truth, truth_path, store, proxy, idle)


def warm_up(replica: Replica, truth: Truth) -> None:
    """Read whole epochs, so that the server's caches and threads exist."""
    problems = check_whole(replica, truth, specs.ORDERED, specs.SHUFFLED, specs.LONG)
    if problems:
        raise SystemExit(f"failed without faults: {problems}")
    settle(replica, lambda sample: sample.is_idle, 30)


def sample_idle(replicas: list[Replica], seconds: float) -> dict[str, Sample]:
    """Return the least that each idle server holds."""
    samples: dict[str, list[Sample]] = {replica.name: [] for replica in replicas}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for replica in replicas:
            sample = replica.sample()
            if sample is None or not sample.is_idle:
                raise SystemExit(f"replica {replica.name} does not become idle: {sample}")
            samples[replica.name].append(sample)
        time.sleep(0.5)

    def least(seen: list[Sample]) -> Sample:
        # A sample opens a connection itself, which the next sample may still see.
        counts = {name: min(getattr(sample, name) for sample in seen) for name in ("descriptors", "tasks", "threads")}
        return replace(seen[-1], **counts)

    return {name: least(seen) for name, seen in samples.items()}


def check_whole(replica: Replica, truth: Truth, *chosen: specs.StreamSpec) -> dict[str, Any]:
    """Read from one replica without fail-over and faults; return the failures."""
    scene = Scene([replica.url], replica.url, truth, Tally(), pace=0.0)
    load = Once(scene, 0)
    for spec in chosen:
        for rank in range(spec.world_size):
            read_through(load, spec, Follower(load, spec, 0, rank), [replica.url], rank=rank)
    found = scene.tally.as_json()
    return {"wrong": found["wrong"]} if found["wrong"] else {}


class Once(Load):
    """A reader outside the run."""

    name = "whole epochs without faults"

    def visit(self) -> None:
        """Do nothing; the reader is driven by `check_whole`."""


def soak(stage: Stage, minutes: float, cores: float) -> tuple[dict[str, Any], list[Verdict]]:
    """Run loads and faults, and judge the result."""
    over, tally = threading.Event(), Tally()
    steady, restarted = stage.replicas
    crowds = [crowd(stage, role) for role in ("readers", "callers")]
    outages = Outages(
        restarted, stage.proxy, stage.store, tally, over, minutes, lambda number: crowd(stage, "victim", number)
    )
    scene = Scene([steady.url, restarted.url], stage.proxy.url, stage.truth, tally, over)
    loads = gather(stage, scene)
    threads = [threading.Thread(target=load.run, name=load.name, daemon=True) for load in loads]

    def pids() -> list[int]:
        running = [one.pid for one in [*crowds, *outages.victims] if one.is_alive]
        return running + [replica.pid for replica in stage.replicas if replica.pid is not None]

    def set_pace(pace: float) -> None:
        scene.pace = pace
        for one in [*crowds, *outages.victims]:
            if one.is_alive:
                one.pace(pace)

    governor = Governor(cores, pids)
    watch = Watch(stage.replicas, governor, minutes, set_pace)
    began, cpu_before, pid = time.monotonic(), governor.cpu_seconds(), steady.pid
    for thread in threads:
        thread.start()
    outages.start()
    try:
        watch.run(over)
    finally:
        over.set()
    seconds = time.monotonic() - began
    cores_mean = (governor.cpu_seconds() - cpu_before) / seconds
    say("all load has ended")
    outages.join()
    for one in crowds:
        if not one.finish(FINISH_SECONDS):
            tally.unexpected("the soak", f"the {one.role} process failed: {list(one.stderr_lines)}")
    for thread in threads:
        thread.join(FINISH_SECONDS)
    tallies = total([tally.as_json(), *(one.tally for one in [*crowds, *outages.victims] if one.tally)])
    is_same = steady.pid == pid and pid is not None
    lived = Verdict("the first replica runs through the whole soak", is_same, f"{steady.starts} start")
    judged = [*verdicts.of_data(tallies), lived]
    replicas: dict[str, Any] = {}
    for replica in stage.replicas:
        held, found = judge(stage, watch, replica, seconds, is_steady=replica is steady)
        judged += found
        replicas[replica.name] = held
    run = {
        "seconds": round(seconds, 1),
        "cores_mean": round(cores_mean, 3),
        "replicas": replicas,
        "restart_seconds": [round(each, 2) for each in outages.restart_seconds],
        "tally": tallies,
        "columns": COLUMNS,
        "samples": watch.samples,
        "cores_columns": ["seconds", "cores", "pace"],
        "cores": watch.cores,
    }
    return run, judged


def gather(stage: Stage, scene: Scene) -> list[Load]:
    """Return the loads of this process: those on bare sockets."""
    tickets: dict[str, bytes] = {}
    with connect(stage.replicas[0].url) as client:
        for spec in (specs.LONG, specs.ORDERED):
            tickets[spec.dataset] = ticket(client, spec.request(stage.truth.plan(spec), 0)).ticket
    return hostile_clients(scene, tickets, [replica.metrics_url for replica in stage.replicas])


def crowd(stage: Stage, role: str, number: int = 0) -> Crowd:
    """Start a process of clients."""
    arguments = [f"--replica={replica.url}" for replica in stage.replicas]
    arguments += [f"--proxied={stage.proxy.url}", f"--truth={stage.truth_path}", f"--number={number}"]
    return Crowd(role, arguments)


def judge(
    stage: Stage, watch: Watch, replica: Replica, seconds: float, *, is_steady: bool
) -> tuple[dict[str, Any], list[Verdict]]:
    """Wait until a replica is idle; judge its resources during and after the run, its responses and its log."""
    idle = stage.idle[replica.name]

    def is_back(sample: Sample) -> bool:
        return sample.is_idle and sample.descriptors <= idle.descriptors and sample.tasks <= idle.tasks

    left, waited = settle(replica, is_back, SETTLE_SECONDS)
    name = f"replica {replica.name[0]}"
    found = verdicts.of_rest(name, idle, left, waited)
    memory, quarters = verdicts.of_memory(name, watch.samples[replica.name], seconds)
    if is_steady:
        found += memory
    problems = check_whole(replica, stage.truth, specs.ORDERED, specs.SHUFFLED, specs.WEB)
    found.append(Verdict(f"{name} serves whole epochs afterwards", not problems, str(problems or "yes")))
    replica.sample()
    found += verdicts.of_answers(name, replica.answered(), replica.alarms, dict(replica.levels))
    held = {
        "starts": replica.starts,
        "idle_before": asdict(idle),
        "idle_after": None if left is None else asdict(left),
        "seconds_until_idle": round(waited, 1),
        **quarters,
        "answered": replica.answered(),
        "log_lines": dict(replica.levels),
        "alarms": replica.alarms,
    }
    return held, found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="minutes of load (%(default)s)")
    parser.add_argument("--cores", type=float, default=CORES, help="cores to use on average (%(default)s)")
    parser.add_argument(
        "--bin", type=Path, help="server program [default: FOREBAY_SERVER_BIN, else this checkout's release build]"
    )
    parser.add_argument("--out", type=Path, help="folder for the results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
