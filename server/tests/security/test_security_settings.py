"""Credentials of the Python client, conflicting flags, and the book's commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import forebay as fb
from harness.certificates import Authority
from harness.daemon import Daemon, run_to_end
from harness.documents import BOOK, example
from harness.secured import TRAINER, Secured
from harness.serving import Serve


def test_python_client_reads_credentials_from_arguments_and_environment(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given = fb.Credentials(token=TRAINER, ca=secured.authority.ca)
    assert TRAINER not in repr(given)
    plan = fb.Plan(outputs={"x": fb.cols("x")})
    with fb.connect(secured.server.url, credentials=given) as client:
        assert list(client.datasets()) == ["numbers"]
        assert sum(len(batch["x"]) for batch in client.stream("numbers", plan, shuffle=True)) == 1000
        assert len(client.replay("numbers", plan, step=0).rows) == 1000
        with pytest.raises(fb.errors.PermissionDenied):
            client.table("secret").read()
    (tmp_path / "token").write_text(TRAINER + "\n")
    monkeypatch.setenv("FOREBAY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("FOREBAY_CA", str(secured.authority.ca))
    with fb.connect(secured.server.url) as client:
        assert list(client.datasets()) == ["numbers"]
    monkeypatch.delenv("FOREBAY_TOKEN_FILE")
    with pytest.raises(fb.errors.Unauthenticated):
        fb.connect(secured.server.url)
    for token in ("", "a\nb", "ä"):
        with pytest.raises(ValueError, match="a header cannot carry"):
            fb.connect(secured.server.url, credentials=fb.Credentials(token=token))
    with pytest.raises(fb.InvalidRequest, match="unencrypted connection"):
        fb.connect("grpc://10.1.2.3:1", credentials=given)


def test_conflicting_flags_exit_with_2(secured: Secured, tmp_path: Path):
    foreign = Authority(tmp_path).issue("foreign", "a")
    pair, principals = secured.pair, secured.principals
    broken = tmp_path / "broken.toml"
    broken.write_text('[a]\ntoken_sha256 = "12"\ndatasets = "*"\n')
    short = tmp_path / "short"
    short.write_text("short")
    tls = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    public = ["--listen", "0.0.0.0:0"]
    for flags, words in [
        (["--tls-cert", str(pair.cert)], "--tls-key"),
        (["--tls-cert", str(pair.cert), "--tls-key", str(foreign.key)], "does not match"),
        (["--tls-cert", str(tmp_path / "none"), "--tls-key", str(pair.key)], "cannot read"),
        (["--tls-cert", str(principals), "--tls-key", str(pair.key)], "PEM"),
        ([*tls, "--tls-client-ca", str(principals)], "PEM"),
        (["--tls-client-ca", str(secured.authority.ca)], "--tls-cert"),
        (["--principals", str(tmp_path / "none")], "cannot read"),
        (["--principals", str(broken)], "64 hexadecimal digits"),
        (["--ticket-key", str(short)], "at least 32"),
        ([*public], "--insecure-public"),
        ([*public, *tls], "credentials"),
        ([*public, "--principals", str(principals)], "TLS"),
        ([*public, *tls, "--principals", str(principals), "--metrics-listen", "0.0.0.0:0"], "--metrics-public"),
    ]:
        listen = [] if "--listen" in flags else ["--listen", "127.0.0.1:0"]
        metrics = [] if "--metrics-listen" in flags else ["--metrics-listen", "127.0.0.1:0"]
        state = ["--state", str(tmp_path / "state")]
        done = run_to_end("--dataset", f"numbers={secured.root}/numbers", *state, *listen, *metrics, *flags)
        assert done.returncode == 2, (flags, done.stderr)
        assert words in done.stderr, (flags, done.stderr)


def test_a_public_address_with_tls_and_credentials_needs_no_insecure_flag(secured: Secured, tmp_path: Path):
    public = ["--listen", "0.0.0.0:0", "--metrics-listen", "0.0.0.0:0", "--metrics-public"]
    dataset = ["--dataset", f"numbers={secured.root}/numbers", "--state", str(tmp_path)]
    daemon = Daemon(*public, *dataset, *secured.flags)
    assert daemon.url.startswith("grpc+tls://0.0.0.0:")
    daemon.stop()


def test_the_books_commands_and_examples(
    serve: Serve, flights_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = (BOOK / "operations/security.md").read_text()
    found = re.search(r"<!-- commands: secure -->\n```sh\n(.*?)```", page, re.DOTALL)
    assert found
    commands, start = found[1].split("forebay-server ", 1)
    subprocess.run(["sh", "-euc", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    flags = re.sub(r"\\\n", " ", start).split()
    at = flags.index("--dataset")
    del flags[at : at + 2]
    at = flags.index("--listen")
    del flags[at : at + 2]
    monkeypatch.chdir(tmp_path)
    server = serve({"flights": flights_folder}, *flags)
    port = server.url.rsplit(":", 1)[1]
    for name in ("secure-plain", "secure-torch"):
        code = example(name).replace("grpc+tls://localhost:8815", f"grpc+tls://localhost:{port}")
        assert port in code
        names: dict[str, Any] = {}
        exec(compile(code, "example", "exec"), names)
        assert names["rows"] == 327_346
