"""Errors of connections and credentials say what to change."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import forebay as fb
from forebay._client.hints import connection_hint
from harness.certificates import Authority, principal
from harness.serving import Serve

TOKEN = "a token of the tests, which is no secret"


@dataclass
class Secured:
    """A server without TLS, and others with a certificate of a private authority."""

    plain: str
    tls: str
    """Requires a token."""
    other_name: str
    expired: str
    mutual: str
    """Requires a client certificate."""
    ca: Path
    token: Path


@pytest.fixture(scope="module")
def secured(serve: Serve, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    root = tmp_path_factory.mktemp("hints")
    authority = Authority(root / "certificates")
    (root / "principals.toml").write_text(principal("trainer", TOKEN, "*"))
    (root / "token").write_text(TOKEN)

    def start(name: str, *names: str, until: int | None = None, flags: tuple[str, ...] = ()) -> str:
        pair = authority.issue(name, *names, until=until)
        return serve({"tiny": tiny_folder}, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key), *flags).url

    return Secured(
        plain=serve({"tiny": tiny_folder}).url,
        tls=start("server", "127.0.0.1", flags=("--principals", str(root / "principals.toml"))),
        other_name=start("other", "forebay.example", "10.1.2.3"),
        expired=start("expired", "127.0.0.1", until=int(time.time()) - 60),
        mutual=start("mutual", "127.0.0.1", flags=("--tls-client-ca", str(authority.ca))),
        ca=authority.ca,
        token=root / "token",
    )


@pytest.fixture(autouse=True)
def no_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FOREBAY_") and name != "FOREBAY_SERVER_BIN"]:
        monkeypatch.delenv(name)


def refusal(url: str | list[str], *, ca: Path | None = None) -> str:
    with pytest.raises(fb.Unavailable) as caught:
        fb.connect(url, credentials=fb.Credentials(ca=ca))
    text = str(caught.value)
    assert caught.value.__cause__ is not None
    for noise in ("gRPC", "Detail:", "Client context", "last error", "ipv4:"):
        assert noise not in text
    return text


def with_scheme(url: str, scheme: str) -> str:
    return f"{scheme}://{url.split('://')[1]}"


def test_a_plain_url_of_a_tls_port(secured: Secured):
    plain = with_scheme(secured.tls, "grpc")
    assert refusal(plain, ca=secured.ca) == f"cannot connect to {plain}: this port speaks TLS: use {secured.tls}"
    assert refusal(plain).startswith(f"cannot connect to {plain}: this port speaks TLS: use {secured.tls}; ")
    mutual = with_scheme(secured.mutual, "grpc")
    assert f"use {secured.mutual}; the server requires a client certificate" in refusal(mutual, ca=secured.ca)


def test_a_tls_url_of_a_plain_port(secured: Secured):
    url = with_scheme(secured.plain, "grpc+tls")
    assert refusal(url, ca=secured.ca) == f"cannot connect to {url}: this port does not speak TLS: use {secured.plain}"


def test_an_unknown_authority(secured: Secured, tmp_path: Path):
    assert "by an authority that this system trusts (" in refusal(secured.tls)
    assert 'give the authority with Credentials(ca="FILE") or FOREBAY_CA' in refusal(secured.tls)
    other = Authority(tmp_path / "other").ca
    assert f"was not issued by the authorities in {other} (" in refusal(secured.tls, ca=other)


def test_a_certificate_with_other_names_or_past_its_time(secured: Secured):
    text = refusal(secured.other_name, ca=secured.ca)
    assert "is for DNS:forebay.example, IP Address:10.1.2.3, not for 127.0.0.1" in text
    assert "certificate has expired" in refusal(secured.expired, ca=secured.ca)


def test_a_missing_client_certificate(secured: Secured):
    assert "Credentials(cert=…, key=…), or set FOREBAY_CERT and FOREBAY_KEY" in refusal(secured.mutual, ca=secured.ca)


def test_every_replica_is_named_with_its_reason(secured: Secured):
    plain = with_scheme(secured.tls, "grpc")
    text = refusal(["grpc://127.0.0.1:1", plain], ca=secured.ca)
    assert text == (
        "cannot connect to grpc://127.0.0.1:1: connection refused: no server listens there; "
        f"{plain}: this port speaks TLS: use {secured.tls}"
    )
    assert refusal("grpc://forebay.invalid:1") == (
        "cannot connect to grpc://forebay.invalid:1: cannot resolve the host name forebay.invalid"
    )


def test_a_missing_or_wrong_token(secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unauthenticated(**known: str | Path) -> str:
        with pytest.raises(fb.errors.Unauthenticated) as caught:
            fb.connect(secured.tls, credentials=fb.Credentials(ca=secured.ca, **known))
        assert caught.value.reason == "UNAUTHENTICATED"
        return str(caught.value)

    missing = unauthenticated()
    assert 'no token was sent: pass credentials=fb.Credentials(token_file="FILE"), or set FOREBAY_TOKEN_FILE' in missing
    assert "the token is from Credentials(token=…): give another with" in unauthenticated(token="wrong")
    (tmp_path / "wrong").write_text("wrong")
    monkeypatch.setenv("FOREBAY_TOKEN_FILE", str(tmp_path / "wrong"))
    assert "the token is from FOREBAY_TOKEN_FILE: " in unauthenticated()
    monkeypatch.setenv("FOREBAY_TOKEN_FILE", str(secured.token))
    monkeypatch.setenv("FOREBAY_CA", str(secured.ca))
    with fb.connect(secured.tls) as client:
        assert "tiny" in client.datasets()


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that accepts connections, reads, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


def test_a_port_that_never_answers_gives_no_hint(silent: str):
    for scheme in ("grpc", "grpc+tls"):
        assert connection_hint(f"{scheme}://{silent}", fb.Credentials()) is None
    assert connection_hint("grpc+unix:///nowhere", fb.Credentials()) is None
    assert connection_hint("grpc://127.0.0.1", fb.Credentials()) is None
