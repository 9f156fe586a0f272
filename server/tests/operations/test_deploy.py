"""server/deploy matches the server and itself: names, ports, paths, timeouts and memory.

Each configuration starts the real server. Whether units, images and manifests are well-formed is for their linters.
"""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest
import yaml

import forebay as fb
from harness.daemon import Daemon, run_to_end
from harness.repository import ROOT
from harness.serving import info

DEPLOY = ROOT / "server/deploy"
UNIT = (DEPLOY / "forebay-server.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
# After the drain, streams that are cut receive the position to resume from.
FAREWELL_SECONDS = 2
# What a process may hold above its streams' budget: the goal that benches/service measures.
HEADROOM_BYTES = 150_000_000


def manifest(kind: str) -> dict[str, Any]:
    """The one manifest of this kind."""
    (found,) = [one for path in MANIFESTS if (one := yaml.safe_load(path.read_text()))["kind"] == kind]
    return found


POD: dict[str, Any] = manifest("StatefulSet")["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]
TOML = {
    "systemd": (DEPLOY / "forebay.toml").read_text(),
    "container": (DEPLOY / "container.toml").read_text(),
    "kubernetes": manifest("ConfigMap")["data"]["forebay.toml"],
}


def settings(unit: str, key: str) -> list[str]:
    """The values of a unit's key, in order."""
    return re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)


def unit_environment() -> dict[str, str]:
    return dict(value.split("=", 1) for value in settings(UNIT, "Environment"))


def toml_value(name: str, key: str) -> str:
    """A value as it is written in one of the files, without quotes and brackets."""
    found = re.search(rf"^{key} = (.+)$", TOML[name], re.MULTILINE)
    assert found, f"{key} is not in the file for {name}"
    return found[1].strip('[]"')


def image(instruction: str) -> str:
    """What the Dockerfile's last instruction of this name says."""
    return re.findall(rf"^{instruction} (.+)$", DOCKERFILE, re.MULTILINE)[-1]


def advertised(namespace: str) -> str:
    (variable,) = [one for one in CONTAINER["env"] if one["name"] == "FOREBAY_ADVERTISE"]
    return variable["value"].replace("$(NAMESPACE)", namespace)


def memory_bytes(quantity: str) -> int:
    number, unit = quantity[:-2], quantity[-2:]
    return int(number) << {"Mi": 20, "Gi": 30}[unit]


def private(name: str, folder: Path, data: Path) -> Path:
    """The file with places of this test's own: loopback ports that are free, a data folder, a state folder."""
    text = re.sub(r'"[\d.]+:\d+"', '"127.0.0.1:0"', TOML[name])
    text = re.sub(r'^state = ".*"', f'state = "{folder}/state"', text, flags=re.MULTILINE)
    text = re.sub(r'^flights = ".*"', f'flights = "{data}"', text, flags=re.MULTILINE)
    file = folder / "forebay.toml"
    file.write_text(text)
    return file


@pytest.fixture(scope="module")
def usage() -> str:
    return run_to_end("--help").stdout


def test_variables_are_those_of_the_server(usage: str):
    known = {*re.findall(r"\[env: (FOREBAY_[A-Z_]+)", usage)}
    # Those that make packages run no server.
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and "packages" not in path.relative_to(DEPLOY).parts]
    for path in files:
        named = {name for name in re.findall(r"FOREBAY_[A-Z_]+", path.read_text()) if not name.endswith("_")}
        assert named <= known, path
    assert "FOREBAY_" in "".join(unit_environment())


def test_flags_are_those_of_the_server(usage: str):
    commands = [*settings(UNIT, "ExecStart"), image("ENTRYPOINT"), *CONTAINER.get("args", [])]
    flags = {flag for command in commands for flag in re.findall(r"--[a-z-]+", command)}
    assert flags == {"--config"}
    assert all(re.search(rf"^ +{flag}\b", usage, re.MULTILINE) for flag in flags)


def test_the_unit_starts_a_server(tmp_path: Path, tiny_folder: Path):
    (command,) = settings(UNIT, "ExecStart")
    program, *arguments = command.split()
    assert program == "/usr/local/bin/forebay-server"
    file = private("systemd", tmp_path, tiny_folder)
    arguments = [argument.replace("/etc/forebay/forebay.toml", str(file)) for argument in arguments]
    assert str(file) in arguments
    env = {name: value.replace("%S/forebay", f"{tmp_path}/state") for name, value in unit_environment().items()}
    daemon = Daemon(*arguments, env=env)
    try:
        assert daemon.get("/readyz")[0] == 200
        assert (tmp_path / "state/plans").is_dir()
        with fb.connect(daemon.url) as client:
            assert client.datasets()["flights"].rows == 100
    finally:
        daemon.stop()
    assert settings(UNIT, "StateDirectory") == ["forebay"]


def test_the_image_starts_a_server(tmp_path: Path, tiny_folder: Path):
    assert image("ENV") == "FOREBAY_CONFIG=/etc/forebay/forebay.toml"
    assert " server/deploy/container.toml /etc/forebay/forebay.toml\n" in DOCKERFILE
    env = {"FOREBAY_CONFIG": str(private("container", tmp_path, tiny_folder)), "FOREBAY_INSECURE_PUBLIC": "true"}
    daemon = Daemon("--dataset", f"flights={tiny_folder}", env=env)
    try:
        assert daemon.get("/healthz")[0] == 200
        assert (tmp_path / "state/plans").is_dir()
    finally:
        daemon.stop()


def test_the_config_map_starts_a_server_whose_endpoints_name_every_replica(tmp_path: Path, tiny_folder: Path):
    (config,) = [one for one in CONTAINER["volumeMounts"] if one["name"] == "config"]
    assert image("ENV") == f"FOREBAY_CONFIG={config['mountPath']}/forebay.toml"
    file = private("kubernetes", tmp_path, tiny_folder)
    daemon = Daemon(env={"FOREBAY_CONFIG": str(file), "FOREBAY_ADVERTISE": advertised("here")})
    try:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert daemon.get(CONTAINER[probe]["httpGet"]["path"])[0] == 200
        with fl.connect(daemon.url) as client:
            plan = {"outputs": [{"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]}]}
            (endpoint,) = info(client, {"dataset": "flights", "plan": plan}).endpoints
        replicas = manifest("StatefulSet")["spec"]["replicas"]
        names = [f"grpc://forebay-{number}.forebay.here.svc:8815" for number in range(replicas)]
        assert [location.uri.decode() for location in endpoint.locations] == names
    finally:
        daemon.stop()
    assert manifest("StatefulSet")["spec"]["serviceName"] == manifest("Service")["metadata"]["name"] == "forebay"
    assert manifest("StatefulSet")["metadata"]["name"] == "forebay"


@pytest.mark.parametrize("name", ["container", "kubernetes"])
def test_public_addresses_are_explicit(name: str, tmp_path: Path):
    file = tmp_path / "forebay.toml"
    file.write_text(TOML[name])
    (tmp_path / "no folder").touch()
    # An invalid state directory: the server exits after reading its configuration, before it listens.
    command = ("--config", str(file), "--dataset", "a=/nowhere", "--state", str(tmp_path / "no folder"))
    done = run_to_end(*command, env={"FOREBAY_INSECURE_PUBLIC": "true"})
    assert done.returncode == 2, done.stderr
    assert "--state" in done.stderr
    # The image requires an explicit flag; the manifests set it, together with a network policy.
    done = run_to_end(*command)
    assert done.returncode == 2, done.stderr
    assert {"container": "--insecure-public", "kubernetes": "--state"}[name] in done.stderr, done.stderr
    assert ("--state" in done.stderr) == (name == "kubernetes"), done.stderr


def test_stop_timeouts_exceed_the_drain():
    assert settings(UNIT, "KillSignal") == ["SIGTERM"]
    (stop,) = settings(UNIT, "TimeoutStopSec")
    assert int(stop) > int(unit_environment()["FOREBAY_DRAIN_SECONDS"]) + FAREWELL_SECONDS
    grace = int(POD["terminationGracePeriodSeconds"])
    assert grace > int(toml_value("kubernetes", "drain_seconds")) + FAREWELL_SECONDS
    readme = (DEPLOY / "README.md").read_text()
    default = re.search(r"--drain-seconds.*?\[default: (\d+)\]", run_to_end("--help").stdout, re.DOTALL)
    assert default
    (engine,) = re.findall(r"--stop-timeout (\d+)", readme)
    assert int(engine) > int(default[1]) + FAREWELL_SECONDS


def test_ports_agree(usage: str):
    flight, metrics = re.findall(r"\[default: 127\.0\.0\.1:(\d+)\]", usage)
    for name in TOML:
        assert toml_value(name, "listen").split(":")[1].strip('"') == flight, name
        assert toml_value(name, "metrics_listen").split(":")[1] == metrics, name
    assert image("EXPOSE").split() == [flight, metrics]
    ports = {"flight": int(flight), "metrics": int(metrics)}
    assert {port["name"]: port["containerPort"] for port in CONTAINER["ports"]} == ports
    assert {port["targetPort"]: port["port"] for port in manifest("Service")["spec"]["ports"]} == ports
    rules = manifest("NetworkPolicy")["spec"]["ingress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == list(ports)
    notes = manifest("StatefulSet")["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == metrics
    assert all(CONTAINER[probe]["httpGet"]["port"] == "metrics" for probe in CONTAINER if probe.endswith("Probe"))


def test_state_and_user_agree():
    (mount,) = [one["mountPath"] for one in CONTAINER["volumeMounts"] if one["name"] == "state"]
    for name in ("container", "kubernetes"):
        assert toml_value(name, "state") == mount
    assert image("VOLUME") == f'["{mount}"]'
    user = POD["securityContext"]["runAsUser"]
    assert image("USER") == f"{user}:{POD['securityContext']['runAsGroup']}"
    assert f"--chown={user}:{user} /state {mount}\n" in DOCKERFILE
    assert POD["securityContext"]["fsGroup"] == user


def test_pod_memory_covers_both_budgets():
    budgets = [
        memory_bytes(toml_value("kubernetes", key).strip('"B')) for key in ("memory_limit_bytes", "fit_memory_bytes")
    ]
    assert memory_bytes(CONTAINER["resources"]["limits"]["memory"]) >= sum(budgets) + HEADROOM_BYTES


def test_versions_agree():
    version = re.search(r"^version = \"(.+)\"", (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert version
    assert f"ARG VERSION={version[1]}\n" in DOCKERFILE
    assert CONTAINER["image"].endswith(f"/forebay-server:{version[1]}")


def test_labels_select_the_pods():
    pod = manifest("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert manifest("Service")["spec"]["selector"] == pod
    for kind in ("StatefulSet", "PodDisruptionBudget"):
        assert manifest(kind)["spec"]["selector"]["matchLabels"] == pod
    assert manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == pod
    assert manifest("ServiceAccount")["metadata"]["name"] == POD["serviceAccountName"]


def test_the_builder_gets_what_the_image_copies():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )?(\S+) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied == ["dist/forebay-*-linux-gnu.tar.gz", "server/deploy/container.toml"]
    assert "*" in ignored
    assert {f"!{name}" for name in copied} <= {*ignored}
    # Names of the archive and of its members: test_packages.py makes one.
    assert "COPY --from=unpack /unpacked/bin/forebay-server /usr/local/bin/forebay-server\n" in DOCKERFILE


class Replica:
    """A server at a port that stays, and may be replaced by another."""

    def __init__(self, folder: Path, data: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        self._flags = ("--listen", address, "--metrics-listen", "127.0.0.1:0", "--dataset", f"flights={data}")
        self._flags += ("--state", str(folder), "--drain-seconds", "0")
        self.daemon = Daemon(*self._flags)

    @property
    def streams(self) -> int:
        found = re.search(r"^forebay_streams_active (\d+)", self.daemon.get("/metrics")[2], re.MULTILINE)
        return int(found[1]) if found else 0

    def replace(self) -> None:
        self.daemon.process.send_signal(signal.SIGTERM)
        assert self.daemon.end() == 0
        self.daemon.stop()
        self.daemon = Daemon(*self._flags)
        assert self.daemon.get("/readyz")[0] == 200


@pytest.fixture
def replicas(tmp_path: Path, flights_folder: Path) -> Iterator[list[Replica]]:
    both = [Replica(tmp_path / str(number), flights_folder) for number in range(2)]
    yield both
    for replica in both:
        replica.daemon.stop()


def test_rolling_replacement_keeps_an_epoch_exact(replicas: list[Replica]):
    # 80 MB on the wire: more than sockets and clients buffer, so that the stream is open until it has been read.
    delays = fb.cols(*["arr_delay"] * 60).standardize()
    plan = fb.Plan(filter="arr_delay IS NOT NULL", outputs={"delays": delays})
    order: dict[str, Any] = {"batch_size": 4096, "shuffle": True, "seed": 3}
    first, second = replicas
    with fb.connect([replica.daemon.url for replica in replicas]) as client:
        fitted = client.fit("flights", plan)
        whole = list(client.stream("flights", fitted, **order))
        stream = client.stream("flights", fitted, **order)
        got = [next(stream)]
        assert (first.streams, second.streams) == (1, 0)
        for replica, other in ((first, second), (second, first)):
            replica.replace()
            # What was on its way still comes; then the other one sends.
            while not other.streams:
                got.append(next(stream))
        got += stream
        assert [batch.header for batch in got] == [batch.header for batch in whole]
        assert all(a.data.equals(b.data) for a, b in zip(got, whole, strict=True))
        assert len(list(client.stream("flights", fitted, epoch=1, **order))) == len(whole)
