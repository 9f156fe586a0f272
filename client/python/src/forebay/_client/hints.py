"""What to change after a failed connection or refused credentials.

gRPC reports a TLS port that is called without TLS as "Socket closed". One TLS handshake with the port, within a time
limit, finds out more.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from forebay.errors import ForebayError, Unauthenticated

from .credentials import Credentials

# Seconds for the connection, and again for the handshake.
PROBE_SECONDS = 1.5
# Seconds for a server to reject a handshake without a client certificate, which in TLS 1.3 follows the handshake.
ALERT_SECONDS = 0.5

_TLS = ("grpc+tls", "grpcs", "https")
_PLAIN = ("grpc", "grpc+tcp", "http")
# OpenSSL's reasons for bytes that are not a TLS record.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "BAD_RECORD_TYPE")
# OpenSSL's codes of failed verifications (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED = 9, 10


def connection_hint(url: str, credentials: Credentials) -> str | None:
    """Return what to change so that a connection to `url` succeeds; None if the port tells nothing."""
    parts = urlsplit(url)
    if parts.scheme not in (*_TLS, *_PLAIN) or parts.hostname is None or parts.port is None:
        return None
    uses_tls = parts.scheme in _TLS
    try:
        authorities = credentials.authorities()
        found = _handshake(parts.hostname, parts.port, authorities, is_anonymous=not credentials.has_certificate)
    except (OSError, ValueError):
        return None
    if found is None:
        return f"this port does not speak TLS: use grpc://{parts.netloc}" if uses_tls else None
    hint = _tls_hint(found, parts, credentials)
    if uses_tls:
        return hint
    more = "" if hint is None else f"; {hint}"
    return f"this port speaks TLS: use grpc+tls://{parts.netloc}{more}"


def credentials_hint(error: Unauthenticated, credentials: Credentials) -> Unauthenticated:
    """Return the error with what to change."""
    source = credentials.token_source()
    if source is None:
        hint = 'no token was sent: pass credentials=fb.Credentials(token_file="FILE"), or set FOREBAY_TOKEN_FILE'
        if credentials.has_certificate:
            hint += "; the server accepts the client certificate only under a name in its --principals"
    else:
        hint = f"the token is from {source}: give another with Credentials(token_file=…) or FOREBAY_TOKEN_FILE"
    hinted = Unauthenticated(f"{error}; {hint}")
    hinted.reason = error.reason
    return hinted


def _handshake(host: str, port: int, authorities: str | None, *, is_anonymous: bool) -> ssl.SSLError | list[str] | None:
    """Return the error of a TLS handshake, or the names of a trusted certificate; None without TLS.

    Raises OSError if the port closes the connection or does not respond.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if authorities is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=authorities)
    with socket.create_connection((host, port), timeout=PROBE_SECONDS) as connected:
        try:
            with context.wrap_socket(connected, server_hostname=host) as wrapped:
                if is_anonymous:
                    _read_alert(wrapped)
                certificate = cast("dict[str, Any]", wrapped.getpeercert() or {})
                return [f"{kind}:{name}" for kind, name in certificate.get("subjectAltName", ())]
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise
        except ssl.SSLError as error:
            return None if error.reason in _NO_TLS else error


def _read_alert(connected: ssl.SSLSocket) -> None:
    """Raise the alert by which the server ends the connection, if it does."""
    connected.settimeout(ALERT_SECONDS)
    with contextlib.suppress(TimeoutError):
        connected.recv(1)


def _tls_hint(found: ssl.SSLError | list[str], parts: SplitResult, credentials: Credentials) -> str | None:
    """Return what to change so that a handshake succeeds."""
    if isinstance(found, list):
        host = str(parts.hostname)
        if any(_is_name(name.split(":", 1)[1], host) for name in found):
            return None
        names = ", ".join(found) or "no name"
        return f"the server's certificate is for {names}, not for {host}: connect to one of its names"
    if isinstance(found, ssl.SSLCertVerificationError):
        if found.verify_code == _EXPIRED:
            return "the server's certificate has expired: its operator must renew it"
        if found.verify_code == _NOT_YET_VALID:
            return "the server's certificate is not valid yet: check this machine's clock"
        trusted = credentials.authorities_source()
        return (
            f"the server's certificate was not issued by {trusted} ({found.verify_message}): "
            'give the authority with Credentials(ca="FILE") or FOREBAY_CA'
        )
    if "CERTIFICATE" in (found.reason or "") and not credentials.has_certificate:
        pair = "Credentials(cert=…, key=…), or set FOREBAY_CERT and FOREBAY_KEY"
        return f"the server requires a client certificate: give {pair}"
    return f"the TLS handshake failed: {found.reason or found}"


def _is_name(name: str, host: str) -> bool:
    """Whether a name of a certificate is that of the host; a wildcard is one label."""
    if name.startswith("*."):
        return host.lower().partition(".")[2] == name[2:].lower()
    return host.lower() == name.lower()


def explained(url: str, error: ForebayError, credentials: Credentials) -> str:
    """Return the error of a first call to the server at `url`, or what to change if the port shows it."""
    text = str(error)
    if text.startswith("connection refused"):
        return f"{text}: no server listens there"
    if text.startswith("cannot resolve"):
        return text
    return connection_hint(url, credentials) or text
