"""Dashboards and rules against a real server's metrics and a real Prometheus."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.certificates import Authority
from harness.daemon import LOOPBACK, Daemon
from harness.documents import BOOK
from harness.monitoring import (
    GRAFANA,
    Load,
    PrometheusProcess,
    write_datasets,
)
from queries import DASHBOARDS, Prometheus, Query, chosen, panels, queries

RULES = GRAFANA / "prometheus/rules.yml"
# Seconds after Prometheus has started within which data must appear.
ANSWER_SECONDS = 180
# Metrics of Prometheus itself.
PROMETHEUS_NAMES = {"up", "ALERTS"}
SELECTED = 'job=~"$job", instance=~"$instance"'
NAME = r"(?<![\w:])(?:forebay_[a-z_]+|up|ALERTS)\b(?!:)"

GRPC_CODES = {
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "ABORTED"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL"),
    *("UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
}

QUERIES = [query for path in DASHBOARDS for query in queries(path)]


def rule_text() -> str:
    """The rules without their comments and texts: what is left names metrics in expressions alone."""
    lines = [line for line in RULES.read_text().splitlines() if not line.lstrip().startswith("#")]
    return re.sub(r"annotations:\n(?: {10}.*\n?)+", "", "\n".join(lines))


def names(text: str) -> set[str]:
    """Metrics that an expression names, a histogram by its own name."""
    outside = re.sub(r'"[^"]*"', '""', text)
    return {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(NAME, outside)}


def literal_labels(text: str) -> set[tuple[str, str]]:
    """Metrics, and a label's value that an expression picks of them by `=`."""
    selectors = re.findall(r"(forebay_[a-z_]+){([^}]*)}", text)
    return {(name, each) for name, matchers in selectors for each in re.findall(r'\w+="\w+"', matchers)}


@dataclass
class Watched:
    """A server under load, and an idle one."""

    busy: Daemon
    idle: Daemon

    def addresses(self) -> list[str]:
        return [re.sub(r"^http://|/metrics$", "", daemon.metrics_url) for daemon in (self.busy, self.idle)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    root = tmp_path_factory.mktemp("grafana")
    datasets = [f"--dataset={name}={folder}" for name, folder in write_datasets(root).items()]
    pair = Authority(root / "certificates").issue("server", "localhost")
    tls = ("--listen", f"unix:{root}/socket", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    daemons = [
        Daemon(*flags, *LOOPBACK, "--state", f"{root}/state-{name}", *datasets)
        for name, flags in {"busy": tls, "idle": ()}.items()
    ]
    load = Load(daemons[0].url)
    try:
        yield Watched(*daemons)
    finally:
        load.stop()
        for daemon in daemons:
            daemon.stop()


@pytest.fixture(scope="module")
def prometheus(watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on PATH (Debian, Ubuntu: apt install prometheus): no query was run")
    process = PrometheusProcess(program, tmp_path_factory.mktemp("prometheus"), watched.addresses())
    try:
        yield Prometheus(process.url)
    finally:
        process.stop()


def test_dashboards_match_the_generator():
    check = subprocess.run([sys.executable, GRAFANA / "dashboards.py", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_has_a_description_unit_and_selector(path: Path):
    dashboard = json.loads(path.read_text())
    assert [variable["name"] for variable in dashboard["templating"]["list"]][:3] == ["datasource", "job", "instance"]
    seen = list(panels(dashboard))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len({(row, panel["title"]) for row, panel in seen}) == len(seen)
    for row, panel in seen:
        where = f"{row} / {panel['title']}"
        assert panel["description"].endswith("."), where
        assert panel["fieldConfig"]["defaults"]["unit"], where
        assert panel["datasource"]["uid"] == "${datasource}", where
        assert panel["targets"], where
        for target in panel["targets"]:
            for name in re.finditer(NAME, re.sub(r'"\w[^"]*"', '""', target["expr"])):
                assert name.string[name.end() :].startswith(f"{{{SELECTED}"), f"{where}: {target['expr']}"


def test_every_selected_label_exists(watched: Watched):
    """A ratio of a misspelt label value would always be 0."""
    picked = literal_labels(rule_text()).union(*(literal_labels(query.expr) for query in QUERIES))
    assert ("forebay_storage_requests_total", 'status="error"') in picked

    def missing() -> set[str]:
        lines = watched.busy.get("/metrics")[2].splitlines()
        there = {(line.split("{")[0], each) for line in lines for each in re.findall(r'\w+="\w+"', line)}
        return {f"{name}{{{label}}}" for name, label in picked - there}

    assert not until(missing, seconds=60)


def test_dashboards_and_rules_count_the_same_failed_calls():
    expressions = [rule_text(), *(query.expr for query in QUERIES)]
    codes = {codes for text in expressions for codes in re.findall(r'code=~"([^"]*)"', text)}
    assert len(codes) == 1
    assert set(codes.pop().split("|")) < GRPC_CODES


def test_every_metric_is_used_and_every_used_metric_exists(watched: Watched):
    page = (BOOK / "reference/metrics.md").read_text()
    table = re.search(r"<!-- metrics -->\n(.*?)<!-- /metrics -->", page, re.DOTALL)
    assert table, "metrics.md has no table of metrics"
    documented = set(re.findall(r"^\| `(forebay_[a-z_]+)", table[1], re.MULTILINE))
    assert documented
    used = names(rule_text()).union(*(names(query.expr) for query in QUERIES)) - PROMETHEUS_NAMES

    def exposed() -> set[str]:
        return set(re.findall(r"^# TYPE (\S+)", watched.busy.get("/metrics")[2], re.MULTILINE))

    # Some names may appear with the first stream.
    missing = until(lambda: used - exposed(), seconds=60)
    assert not missing, "the server does not expose metrics that dashboards or rules query"
    assert not documented - used, "no panel and no rule queries these"


@pytest.mark.parametrize("check", [("check", "config", "prometheus.yml"), ("check", "rules", "rules.yml")])
def test_promtool_accepts_the_rules(check: tuple[str, ...]):
    *verbs, file = check
    promtool(*verbs, str(RULES.parent / file))


def test_each_alert_fires_exactly_when_it_should():
    output = promtool("test", "rules", str(RULES.parent / "rules_test.yml"))
    assert "SUCCESS" in output
    text = (RULES.parent / "rules_test.yml").read_text()
    for alert in re.findall(r"- alert: (\w+)", RULES.read_text()):
        tests = re.findall(rf"alertname: {alert}\n +eval_time: \w+\n +exp_alerts:(.*)", text)
        assert {test.strip() for test in tests} == {"", "[]"}, alert


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on PATH (Debian, Ubuntu: apt install prometheus): rules were not checked")
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def until(missing: Callable[[], set[str]], *, seconds: float) -> set[str]:
    """Ask every half second until nothing is missing; returns what is in the end."""
    deadline = time.monotonic() + seconds
    while (left := missing()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def values(prometheus: Prometheus, expr: str) -> list[float]:
    return [answer.points[-1][1] for answer in prometheus.now(expr)]


def answered(prometheus: Prometheus, expr: str) -> bool:
    found = values(prometheus, expr)
    return bool(found) and all(math.isfinite(value) for value in found)


def of(query: Query, address: str) -> str:
    """The query as Grafana sends it for this server only, with rates over a few scrapes."""
    choice = {
        "job": "forebay",
        "instance": re.escape(address),
        "dataset": ".*",
        "stream": ".*",
        "__rate_interval": "10s",
    }
    return chosen(query.expr, {name: value.replace("\\", "\\\\") for name, value in choice.items()})


def is_ratio(query: Query) -> bool:
    return query.panel["fieldConfig"]["defaults"]["unit"] == "percentunit"


def test_every_query_returns_data_under_load(watched: Watched, prometheus: Prometheus):
    busy, idle = watched.addresses()
    waiting = {f"{query}": of(query, busy) for query in QUERIES}
    # A ratio of nothing to nothing is 0.
    ratios = [query for query in QUERIES if query.dashboard == "overview" and is_ratio(query)]
    waiting |= {f"without load: {query}": of(query, idle) for query in ratios}

    def missing() -> set[str]:
        for name, expr in list(waiting.items()):
            if answered(prometheus, expr):
                del waiting[name]
        return set(waiting)

    left = until(missing, seconds=ANSWER_SECONDS)
    assert not left, "\n".join(sorted(left))
    failing = [query for query in QUERIES if query.panel["title"].startswith("Failed")]
    assert len(failing) >= 4
    for query in failing:
        for address in (busy, idle):
            assert set(values(prometheus, of(query, address))) == {0.0}, query


def test_every_rule_returns_data_under_load(watched: Watched, prometheus: Prometheus):
    def rules() -> list[dict[str, str]]:
        return [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]

    def missing() -> set[str]:
        # An alert's query is empty on a healthy server; without its thresholds it returns data.
        unbounded = [re.sub(r" (?:[<>]=?|[!=]=) [\d.]+(?:e[+]\d+)?", "", rule["query"]) for rule in rules()]
        unhealthy = {f"{rule['name']}: {rule['health']}" for rule in rules() if rule["health"] != "ok"}
        return unhealthy | {query for query in unbounded if not answered(prometheus, query)}

    assert rules()
    left = until(missing, seconds=ANSWER_SECONDS)
    assert not left, "\n".join(sorted(left))
    assert {rule["name"] for rule in rules() if rule.get("state") == "firing"} == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_variable_has_values(path: Path, watched: Watched, prometheus: Prometheus):
    variables = json.loads(path.read_text())["templating"]["list"]
    label_queries = {v["name"]: re.fullmatch(r"label_values\((.*), (\w+)\)", v["definition"]) for v in variables[1:]}

    def missing() -> set[str]:
        empty = set[str]()
        for name, query in label_queries.items():
            assert query, name
            selector = chosen(query[1], {"job": ".+", "instance": ".+", "dataset": ".+"})
            found = prometheus.get("series", **{"match[]": selector})
            if not any(each.get(query[2]) for each in found):
                empty.add(name)
        return empty

    assert not until(missing, seconds=ANSWER_SECONDS)
