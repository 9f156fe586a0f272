"""Configuration by flags, environment and file, and errors for invalid values."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.daemon import LOOPBACK, Daemon, run_to_end
from harness.serving import server_binary

Start = Callable[..., Daemon]
OPTIONS = [
    "tokenizer",
    "dataset",
    "listen",
    "advertise",
    "metrics-listen",
    "int96-unit",
    "dataset-schema",
    "state",
    "state-inline-bytes",
    "state-plan-bytes",
    "state-result-bytes",
    "state-unused-days",
    "drain-seconds",
    "connection-age-seconds",
    "connection-grace-seconds",
    "keepalive-seconds",
    "memory-limit-bytes",
    "view",
    "view-memory-bytes",
    "fit-memory-bytes",
    "batch-bytes-max",
    "cache-bytes",
    "groups-max",
    "cpu-threads",
    "device",
    "log",
    "log-format",
    "otlp-endpoint",
    "reflection",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "principals",
    "ticket-key",
    "ticket-seconds",
    "streams-max",
    "streams-per-client",
    "stream-idle-seconds",
    "stream-pause-seconds",
    "connections-max",
    "connections-per-address",
    "handshake-seconds",
    "message-bytes-max",
    "plan-bytes-max",
    "plan-columns-max",
    "plan-ops-max",
    "expression-operators-max",
    "plan-operators-max",
    "storage-requests-max",
    "dataset-files-max",
    "metrics-public",
    "insecure-public",
    "exit-with-stdin",
    "config",
    "scratch-dir",
    "cache-dir",
    "cache-dir-bytes",
    "udf",
    "udf-timeout-seconds",
]


@pytest.fixture
def start(tiny_folder: Path, tmp_path: Path) -> Iterator[Start]:
    running: list[Daemon] = []

    def begin(*arguments: str, env: dict[str, str] | None = None) -> Daemon:
        common = (*LOOPBACK, "--state", str(tmp_path / "state"), "--dataset", f"tiny={tiny_folder}")
        running.append(Daemon(*common, *arguments, env=env))
        return running[-1]

    yield begin
    for daemon in running:
        daemon.stop()


def memory_limit(daemon: Daemon) -> int:
    found = re.search(r"^forebay_memory_limit_bytes (\S+)$", daemon.get("/metrics")[2], re.MULTILINE)
    assert found
    return int(float(found[1]))


def nowhere(folder: Path) -> tuple[str, ...]:
    """A missing dataset, and a separate state directory."""
    return ("--dataset", "a=/nowhere", "--state", str(folder / "state of nowhere"))


def test_help_names_every_option_with_its_variable():
    done = run_to_end("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for option in OPTIONS:
        assert re.search(rf"^ +--{option}\b", done.stdout, re.MULTILINE), option
        assert f"[env: FOREBAY_{option.upper().replace('-', '_')}" in done.stdout, option
    shown = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", done.stdout, re.MULTILINE))
    assert shown == {*OPTIONS, "help", "version"}


def test_version():
    done = run_to_end("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"forebay-server \d+\.\d+\.\d+\S*\n", done.stdout)


def test_precedence_is_flag_environment_file_default(start: Start, tmp_path: Path):
    file = tmp_path / "forebay.toml"
    file.write_text("memory_limit_bytes = 111000111\n")
    from_file = ("--config", str(file))
    env = {"FOREBAY_MEMORY_LIMIT_BYTES": "222000222"}
    assert memory_limit(start(*from_file)) == 111000111
    assert memory_limit(start(env={"FOREBAY_CONFIG": str(file)})) == 111000111
    assert memory_limit(start(*from_file, env=env)) == 222000222
    assert memory_limit(start(*from_file, "--memory-limit-bytes", "333000333", env=env)) == 333000333
    assert memory_limit(start()) > 333000333


def test_sizes_have_units_in_flags_environment_and_file(start: Start, tmp_path: Path):
    file = tmp_path / "forebay.toml"
    file.write_text('memory_limit_bytes = "1.5GiB"\n')
    assert memory_limit(start("--config", str(file))) == 3 << 29
    assert memory_limit(start(env={"FOREBAY_MEMORY_LIMIT_BYTES": "512 MB"})) == 512_000_000
    assert memory_limit(start("--memory-limit-bytes", "700mib")) == 700 << 20


def test_datasets_and_addresses_are_read_from_file_and_environment(tiny_folder: Path, tmp_path: Path):
    file = tmp_path / "forebay.toml"
    file.write_text(
        f'listen = ["127.0.0.1:0", "unix:{tmp_path}/s"]\nmetrics_listen = "127.0.0.1:0"\nlog = "error"\n'
        f'state = "{tmp_path}/state"\n[dataset]\na = "{tiny_folder}"\nb = "{tiny_folder}/*.parquet"\n'
    )
    daemon = Daemon("--config", str(file))
    try:
        assert [url.split(":")[0] for url in daemon.urls] == ["grpc", "grpc+unix"]
        # At log level `error` only the ready lines are logged.
        ring = [f"ring on {tmp_path}/s.ring"] if sys.platform == "linux" else []
        first, second, *others, last = [line.rstrip("\n") for line in daemon.lines]
        assert [first, second] == [f"listening on {url}" for url in daemon.urls]
        assert others == ring
        assert last.startswith("metrics on ")
    finally:
        assert daemon.stop() == ""
    env = {
        "FOREBAY_LISTEN": f"127.0.0.1:0\nunix:{tmp_path}/t",
        "FOREBAY_METRICS_LISTEN": "127.0.0.1:0",
        "FOREBAY_DATASET": f"a={tiny_folder}\nb={tiny_folder}",
        "FOREBAY_STATE": f"{tmp_path}/state",
    }
    daemon = Daemon(env=env)
    try:
        assert len(daemon.urls) == 2
    finally:
        daemon.stop()


GOOD = ("--dataset", "a=/nowhere", *LOOPBACK)

WRONG: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "no dataset": (LOOPBACK, ["--dataset"]),
    "dataset without a name": (("--dataset", "/nowhere"), ["--dataset", "NAME=URL"]),
    "dataset twice": ((*GOOD, "--dataset", "a=/elsewhere"), ['"a"', "twice"]),
    "another scheme": (("--dataset", "a=ftp://host/key"), ["ftp://", "s3://bucket"]),
    "no bucket": (("--dataset", "a=s3:///key"), ["s3://", "bucket"]),
    "http folder": (("--dataset", "a=https://host/folder/"), ["https://host/folder/", "one file"]),
    "http password": (("--dataset", "a=https://u:p@host/f.parquet"), ["https://host/f.parquet", "no credentials"]),
    "relative file URL": (("--dataset", "a=file://data/x"), ["file://", "absolute"]),
    "broken glob": (("--dataset", "a=/tmp/[a/*.parquet"), ["glob"]),
    "unknown flag": ((*GOOD, "--drain-second", "1"), ["--drain-second", "--drain-seconds"]),
    "stray word": ((*GOOD, "now"), ["now"]),
    "flag without its value": ((*GOOD, "--log"), ["--log"]),
    "text for a number": ((*GOOD, "--drain-seconds", "soon"), ["--drain-seconds", "soon"]),
    "negative number": ((*GOOD, "--drain-seconds=-1"), ["--drain-seconds", "-1"]),
    "zero where one is the least": ((*GOOD, "--batch-bytes-max", "0"), ["--batch-bytes-max", "0"]),
    "unknown unit of a size": ((*GOOD, "--batch-bytes-max", "8GX"), ["--batch-bytes-max", "8GX", "8GiB"]),
    "ambiguous unit of a size": ((*GOOD, "--fit-memory-bytes", "64k"), ["--fit-memory-bytes", "kB", "KiB"]),
    "size above its bound": ((*GOOD, "--batch-bytes-max", "2GiB"), ["--batch-bytes-max", "2GB"]),
    "part of a byte": ((*GOOD, "--memory-limit-bytes", "0.5"), ["--memory-limit-bytes", "0.5", "whole"]),
    "unknown log format": ((*GOOD, "--log-format", "xml"), ["--log-format", "xml", "json"]),
    "bad log filter": ((*GOOD, "--log", "forebay=loud=very"), ["--log"]),
    "public address": (("--dataset", "a=/nowhere", "--listen", "0.0.0.0:0"), ["0.0.0.0:0", "--insecure-public"]),
    "public IPv6 address": (("--dataset", "a=/nowhere", "--listen", "[::]:0"), ["[::]:0", "--insecure-public"]),
    "public metrics": ((*GOOD[:4], "--metrics-listen", "0.0.0.0:0"), ["metrics-listen", "--insecure-public"]),
    "no port": (("--dataset", "a=/nowhere", "--listen", "127.0.0.1"), ["--listen", "127.0.0.1"]),
    "port too large": (("--dataset", "a=/nowhere", "--listen", "127.0.0.1:70000"), ["--listen", "70000"]),
    "socket without a path": (("--dataset", "a=/nowhere", "--listen", "unix:"), ["--listen", "path"]),
    "remote state": ((*GOOD, "--state", "s3://bucket"), ["--state", "s3://"]),
    "missing file": ((*GOOD, "--config", "/nowhere/forebay.toml"), ["/nowhere/forebay.toml"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage_exits_with_2_and_lists_allowed_values(name: str):
    arguments, words = WRONG[name]
    done = run_to_end(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr
    assert "panic" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("drain_second = 1", ["drain_second", "drain_seconds"]),
        ("[server]\ndrain_seconds = 1", ["server"]),
        ('drain_seconds = "soon"', ["drain_seconds"]),
        ("drain_seconds = [1, 2]", ["drain_seconds"]),
        ('plan_bytes_max = "64 megs"', ["plan_bytes_max", "64 megs", "MiB"]),
        ("insecure_public = 3", ["insecure_public"]),
        ("drain_seconds = ", ["forebay.toml", "line 1"]),
        ('config = "other.toml"', ["config"]),
    ],
)
def test_invalid_file_exits_with_2_and_names_the_key(text: str, words: list[str], tmp_path: Path):
    (tmp_path / "forebay.toml").write_text(text)
    done = run_to_end(*GOOD, "--config", str(tmp_path / "forebay.toml"))
    assert (done.returncode, done.stdout) == (2, "")
    for word in words:
        assert word in done.stderr, done.stderr


def test_invalid_variable_exits_with_2_and_is_named():
    done = run_to_end(*GOOD, env={"FOREBAY_DRAIN_SECONDS": "soon"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "soon" in done.stderr
    assert "drain-seconds" in done.stderr


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gone", 'dataset "b" at "{}/gone": there is no such file or directory'),
        ("gone.parquet", "there is no such file or directory"),
        ("gone/*.parquet", "there is no directory {}/gone"),
        ("file.parquet/*.parquet", "there is no directory {}/file.parquet"),
    ],
)
def test_a_missing_dataset_exits_with_2_and_is_named(path: str, words: str, tmp_path: Path):
    (tmp_path / "file.parquet").touch()
    datasets = ("--dataset", f"a={tmp_path}", "--dataset", f"b={tmp_path}/{path}")
    done = run_to_end(*datasets, *LOOPBACK, "--state", str(tmp_path / "state"))
    assert (done.returncode, done.stdout) == (2, "")
    assert words.format(tmp_path) in done.stderr
    assert "listening on grpc" not in done.stderr


def test_address_in_use_exits_with_1(tmp_path: Path):
    arguments = nowhere(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for flags in (
            ("--listen", address, "--metrics-listen", "127.0.0.1:0"),
            ("--listen", "127.0.0.1:0", "--metrics-listen", address),
        ):
            done = run_to_end(*arguments, *flags)
            assert (done.returncode, done.stdout) == (1, "")
            assert address in done.stderr
            assert re.search("in use", done.stderr)
            assert "listening on grpc" not in done.stderr


def test_stale_sockets_are_replaced_and_other_files_kept(start: Start, tmp_path: Path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    living = start("--listen", f"unix:{path}")
    assert living.urls[-1] == f"grpc+unix://{path}"
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (path, file, tmp_path / "no" / "folder"):
        done = run_to_end(*nowhere(tmp_path), *LOOPBACK[2:], "--listen", f"unix:{place}")
        assert done.returncode == 1
        assert str(place) in done.stderr
    assert path.is_socket()
    assert file.read_text() == "mine"


def test_state_path_that_is_not_a_directory_exits_with_2(tmp_path: Path):
    (tmp_path / "state").write_text("mine")
    done = run_to_end(*GOOD, "--state", str(tmp_path / "state"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--state" in done.stderr
    assert (tmp_path / "state").read_text() == "mine"


def test_state_on_a_read_only_file_system_exits_with_2(tmp_path: Path):
    state, data = tmp_path / "state", tmp_path / "data"
    data.mkdir()
    flags = [*LOOPBACK, "--dataset", f"a={data}", "--state", str(state)]
    Daemon(*flags).stop()
    assert (state / "plans").is_dir()
    words = [server_binary(), *flags]
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 77; exec "$@"'
    unshare = shutil.which("unshare") or pytest.skip("needs unshare")
    done = subprocess.run([unshare, "-m", "sh", "-c", mount, str(state), *words], capture_output=True, timeout=60)
    if done.returncode == 77 or b"unshare" in done.stderr:
        pytest.skip("needs the right to mount")
    assert done.returncode == 2
    assert b"--state" in done.stderr
    assert str(state).encode() in done.stderr


def test_missing_gpu_is_logged_once_and_the_cpu_serves(start: Start):
    """A number that no machine has: so it is with a driver and without."""
    daemon = start("--device", "cuda:4095")
    lines = [line for line in daemon.lines if "cuda:4095" in line]
    assert len(lines) == 1
    assert "computing on the CPU" in lines[0]
    assert memory_limit(daemon) > 0


def test_a_device_is_cpu_or_a_numbered_gpu():
    done = run_to_end("--dataset", "a=/nowhere", "--device", "gpu")
    assert done.returncode == 2
    assert "--device" in done.stderr
    assert "cuda:0" in done.stderr
