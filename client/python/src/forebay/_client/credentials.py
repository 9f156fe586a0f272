"""Credentials that a client presents, and the authorities it trusts."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast
from urllib.parse import urlsplit

from forebay.errors import InvalidRequest

_TLS = "grpc+tls:"


class Tls(TypedDict, total=False):
    """Arguments of pyarrow's client, in PEM."""

    tls_root_certs: str
    cert_chain: str
    private_key: str


@dataclass(frozen=True)
class Credentials:
    """Bearer token, client certificate and trusted authorities.

    Files are read for each connection, so renewed files take effect. The token is sent with every call, but only over
    TLS, to a Unix socket or to this machine. Missing values are read from the environment variables ``FOREBAY_TOKEN``,
    ``FOREBAY_TOKEN_FILE``, ``FOREBAY_CA``, ``FOREBAY_CERT`` and ``FOREBAY_KEY``.
    """

    token: str | None = field(default=None, repr=False)
    """The token itself."""
    token_file: str | os.PathLike[str] | None = None
    """File with the token."""
    ca: str | os.PathLike[str] | None = None
    """File of trusted authorities, in PEM; the system's by default."""
    cert: str | os.PathLike[str] | None = None
    """File of the client's certificate chain, in PEM."""
    key: str | os.PathLike[str] | None = None
    """File of its key, in PEM."""

    def headers(self, url: str) -> list[tuple[bytes, bytes]]:
        """Return the headers of a call to the server at `url`."""
        token = self._token()
        if token is None:
            return []
        if not _is_private(url):
            raise InvalidRequest(
                f"{url}: a token is not sent over an unencrypted connection to another host: use grpc+tls://"
            )
        return [(b"authorization", b"Bearer " + token.encode())]

    def authorities(self) -> str | None:
        """Return the trusted authorities in PEM; None if none are given and the system has none."""
        ca = _given(self.ca, "FOREBAY_CA")
        if ca is None:
            ca = cast("str | None", ssl.get_default_verify_paths().cafile)
        return None if ca is None else Path(ca).read_text()

    def authorities_source(self) -> str:
        """Return the source of the trusted authorities, for an error."""
        ca = _given(self.ca, "FOREBAY_CA")
        return "an authority that this system trusts" if ca is None else f"the authorities in {os.fspath(ca)}"

    def token_source(self) -> str | None:
        """Return the source of the token, for an error; None if there is no token."""
        if self.token is not None:
            return "Credentials(token=…)"
        if self.token_file is not None:
            return f"Credentials(token_file={os.fspath(self.token_file)!r})"
        return next((name for name in ("FOREBAY_TOKEN", "FOREBAY_TOKEN_FILE") if os.environ.get(name)), None)

    @property
    def has_certificate(self) -> bool:
        """Whether there is a client certificate."""
        return _given(self.cert, "FOREBAY_CERT") is not None

    def tls(self, url: str) -> Tls:
        """Return the TLS arguments of pyarrow's client for the server at `url`."""
        if not url.startswith(_TLS):
            return {}
        # pyarrow includes no authorities.
        ca = self.authorities()
        cert, key = _given(self.cert, "FOREBAY_CERT"), _given(self.key, "FOREBAY_KEY")
        if (cert is None) != (key is None):
            raise ValueError("a client certificate requires its key: pass both cert and key, or omit both")
        options: Tls = {}
        if ca is not None:
            options["tls_root_certs"] = ca
        if cert is not None and key is not None:
            options["cert_chain"] = Path(cert).read_text()
            options["private_key"] = Path(key).read_text()
        return options

    def _token(self) -> str | None:
        token = self.token
        if token is None and self.token_file is None:
            token = os.environ.get("FOREBAY_TOKEN") or None
        file = _given(self.token_file, "FOREBAY_TOKEN_FILE")
        if token is None and file is not None:
            token = Path(file).read_text()
        if token is None:
            return None
        token = token.strip()
        if not token or not token.isascii() or not token.isprintable():
            raise ValueError("the token is empty or has characters that a header cannot carry")
        return token


def _given(value: str | os.PathLike[str] | None, variable: str) -> str | os.PathLike[str] | None:
    return value if value is not None else os.environ.get(variable) or None


def _is_private(url: str) -> bool:
    if url.startswith((_TLS, "grpc+unix:")):
        return True
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
