"""SIGHUP: datasets, principals and certificates of the configuration change under a running server."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

from harness.certificates import Authority, principal
from harness.daemon import LOOPBACK, Daemon, poll
from harness.metrics import scrape
from harness.serving import info

TOKEN, LATER = "token-of-trainer-0123456789", "token-of-later-0123456789"
ROWS = 100_000
TEXT_PLAN: dict[str, Any] = {"outputs": [{"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]}]}


@dataclass
class Configured:
    """A server with a configuration file, which tests rewrite."""

    file: Path
    daemon: Daemon

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def reload(self) -> bool:
        """Send SIGHUP; returns whether the configuration was accepted."""
        before = self.counts()
        self.daemon.process.send_signal(signal.SIGHUP)
        assert poll(lambda: sum(self.counts().values()) > sum(before.values())), self.daemon.lines
        return self.counts()["ok"] > before["ok"]

    def counts(self) -> dict[str, float]:
        now = scrape(self.daemon)
        return {status: now.value("forebay_config_reloads_total", status=status) for status in ("ok", "failed")}

    def lines(self, words: str) -> list[dict[str, Any]]:
        """The log lines with these words in their message; waits for the first."""

        def found() -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in list(self.daemon.lines) if line.startswith("{")]
            return [line for line in lines if words in line["fields"]["message"]]

        return poll(found)

    def names(self) -> set[str]:
        with fl.connect(self.daemon.url) as client:
            return {found.descriptor.path[0].decode() for found in client.list_flights()}


def rows(client: fl.FlightClient, dataset: str, options: fl.FlightCallOptions | None = None) -> int:
    found = client.get_flight_info(fl.FlightDescriptor.for_path(dataset), options)
    return client.do_get(found.endpoints[0].ticket, options).read_all().num_rows


def bearer(token: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(timeout=20, headers=[(b"authorization", f"Bearer {token}".encode())])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets of 1 to 3 rows, and one of 100 MB that a client must read to finish."""
    root = tmp_path_factory.mktemp("reload")
    for name, count in (("one", 1), ("two", 2), ("three", 3)):
        (root / name).mkdir()
        pq.write_table(pa.table({"x": np.arange(count)}), root / name / "a.parquet")
    (root / "long").mkdir()
    text = pa.DictionaryArray.from_arrays(np.zeros(ROWS, np.int32), ["forebay " * 128])
    pq.write_table(pa.table({"text": text}), root / "long/a.parquet", store_schema=False, row_group_size=10_000)
    return root


@pytest.fixture
def begin(root: Path, tmp_path: Path) -> Iterator[Callable[..., Configured]]:
    with contextlib.ExitStack() as running:

        def start(text: str, *flags: str) -> Configured:
            file = tmp_path / "forebay.toml"
            file.write_text(text)
            daemon = Daemon(*LOOPBACK, "--state", f"{tmp_path}/state", "--config", str(file), *flags)
            running.callback(daemon.stop)
            return Configured(file, daemon)

        yield start


Begin = Callable[..., Configured]


def test_datasets_are_added_removed_and_changed_under_a_running_stream(begin: Begin, root: Path):
    server = begin(f'[dataset]\nlong = "{root}/long"\nsame = "{root}/one"\nmoved = "{root}/two"\n')
    with fl.connect(server.daemon.url) as client:
        kept = info(client, {"dataset": "same", "plan": {"outputs": [{"name": "x", "parts": [{"columns": ["x"]}]}]}})
        found = info(client, {"dataset": "long", "plan": TEXT_PLAN, "batch_size": 1000})
        reader = client.do_get(found.endpoints[0].ticket)
        read = reader.read_chunk().data.num_rows
        server.write(f'[dataset]\nsame = "{root}/one"\nmoved = "{root}/three"\nadded = "{root}/two"\n')
        assert server.reload()
        # New calls, also on this connection, see the new datasets only.
        assert server.names() == {"same", "moved", "added"}
        assert {name: rows(client, name) for name in ("same", "moved", "added")} == {"same": 1, "moved": 3, "added": 2}
        assert client.do_get(kept.endpoints[0].ticket).read_all().num_rows == 1
        for call in (lambda: rows(client, "long"), lambda: client.do_get(found.endpoints[0].ticket).read_all()):
            with pytest.raises(KeyError, match="long"):
                call()
        # The stream that runs keeps its snapshot.
        assert read + reader.read_all().num_rows == ROWS
    (line,) = server.lines("configuration reloaded")
    changes = {name: line["fields"][name] for name in ("added", "removed", "changed")}
    assert changes == {"added": "added", "removed": "long", "changed": "moved"}
    assert server.counts() == {"ok": 1, "failed": 0}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[dataset]\none = ", ["forebay.toml", "not TOML"]),
        ('datasets = ["one=/tmp"]', ["forebay.toml", "datasets", "dataset"]),
        ('[dataset]\none = "{root}/one"\nbad = "ftp://host/x"', ["bad", "ftp://"]),
        ('principals = "{root}/nowhere.toml"\n[dataset]\nadded = "{root}/two"', ["principals", "nowhere.toml"]),
        ('device = "gpu"\n[dataset]\nadded = "{root}/two"', ["device", "gpu"]),
        ("", ["dataset"]),
        (None, ["forebay.toml"]),
    ],
)
def test_invalid_configuration_changes_nothing(begin: Begin, root: Path, text: str | None, words: list[str]):
    server = begin(f'[dataset]\none = "{root}/one"\n')
    if text is None:
        server.file.unlink()
    else:
        server.write(text.replace("{root}", str(root)))
    assert not server.reload()
    (line,) = server.lines("cannot reload the configuration")
    assert line["level"] == "ERROR"
    for word in words:
        assert word in line["fields"]["error"], line
    assert "\n" not in line["fields"]["error"]
    assert server.names() == {"one"}
    # The next valid one is applied.
    server.write(f'[dataset]\ntwo = "{root}/two"\n')
    assert server.reload()
    assert server.names() == {"two"}
    assert server.counts() == {"ok": 1, "failed": 1}


def test_settings_that_need_a_restart_are_named(begin: Begin, root: Path, tmp_path: Path):
    datasets = f'[dataset]\none = "{root}/one"\n'
    server = begin(f"memory_limit_bytes = 100000000\ndrain_seconds = 5\n{datasets}")
    (tmp_path / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    server.write(
        f'memory_limit_bytes = 200000000\ndrain_seconds = 5\nprincipals = "{tmp_path}/principals.toml"\n'
        f'{datasets}two = "{root}/two"\n'
    )
    assert server.reload()
    assert server.names() == {"one", "two"}
    (line,) = server.lines("restart to change")
    assert line["level"] == "WARN"
    assert line["fields"]["message"] == "restart to change --memory-limit-bytes, --principals"
    assert scrape(server.daemon).value("forebay_memory_limit_bytes") == 100000000


def test_principals_and_certificates_of_other_files_are_used(begin: Begin, root: Path, tmp_path: Path):
    authority = Authority(tmp_path / "authority")
    first, second = (authority.issue(name, "localhost", "127.0.0.1") for name in ("first", "second"))
    for name, token in (("first", TOKEN), ("second", LATER)):
        (tmp_path / f"{name}.toml").write_text(principal(name, token, "*"))

    def text(name: str, cert: Path, key: Path) -> str:
        files = f'principals = "{tmp_path}/{name}.toml"\ntls_cert = "{cert}"\ntls_key = "{key}"\n'
        return f'{files}[dataset]\none = "{root}/one"\nlong = "{root}/long"\n'

    server = begin(text("first", first.cert, first.key))
    place = urlsplit(server.daemon.url)

    def certificate() -> str:
        return ssl.get_server_certificate((str(place.hostname), int(str(place.port))))

    before = certificate()
    with fl.FlightClient(server.daemon.url, tls_root_certs=authority.ca.read_bytes()) as client:
        command = {"dataset": "long", "plan": TEXT_PLAN, "batch_size": 1000}
        descriptor = fl.FlightDescriptor.for_command(json.dumps(command).encode())
        ticket = client.get_flight_info(descriptor, bearer(TOKEN)).endpoints[0].ticket
        reader = client.do_get(ticket, bearer(TOKEN))
        read = reader.read_chunk().data.num_rows
        # With a key that does not match its certificate, the new principals are not used either.
        server.write(text("second", second.cert, first.key))
        assert not server.reload()
        assert "does not match" in server.lines("cannot reload")[0]["fields"]["error"]
        assert rows(client, "one", bearer(TOKEN)) == 1
        assert certificate() == before
        server.write(text("second", second.cert, second.key))
        assert server.reload()
        assert certificate() != before
        assert rows(client, "one", bearer(LATER)) == 1
        with pytest.raises(fl.FlightUnauthenticatedError):
            rows(client, "one", bearer(TOKEN))
        # The stream that the first principal opened continues.
        assert read + reader.read_all().num_rows == ROWS
    assert not any("restart to change" in line for line in server.daemon.lines)


def test_without_a_file_the_signal_reloads_principals_and_never_ends_the_server(root: Path, tmp_path: Path):
    (tmp_path / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    flags = ("--dataset", f"one={root}/one", "--state", f"{tmp_path}/state")
    daemon = Daemon(*LOOPBACK, *flags, "--principals", f"{tmp_path}/principals.toml")
    server = Configured(tmp_path / "unused", daemon)
    try:
        with fl.connect(daemon.url) as client:
            assert rows(client, "one", bearer(TOKEN)) == 1
            (tmp_path / "principals.toml").write_text(principal("trainer", LATER, "*"))
            assert server.reload()
            assert rows(client, "one", bearer(LATER)) == 1
            (tmp_path / "principals.toml").write_text("[")
            assert not server.reload()
            assert rows(client, "one", bearer(LATER)) == 1
        for _ in range(5):
            daemon.process.send_signal(signal.SIGHUP)
        daemon.process.terminate()
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.end() == 0
    finally:
        daemon.stop()
    assert not any("panic" in line for line in daemon.lines)
