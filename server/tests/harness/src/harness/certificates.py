"""A test certificate authority, and its certificates as PEM files."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Pair:
    """A certificate chain and its key."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, file: str, *names: str, until: int | None = None) -> Pair:
        """A certificate for these names, over the one that the file held before; `until`: seconds since 1970."""
        expires = None if until is None else datetime.datetime.fromtimestamp(until, datetime.timezone.utc)
        issued = self._authority.issue_cert(*names, not_after=expires)
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}.key")
        issued.private_key_pem.write_to_path(pair.key)
        pair.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return pair


def digest(token: str) -> str:
    """What the server's file keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def principal(name: str, token: str, *datasets: str, more: str = "") -> str:
    """A table of the file of principals."""
    return f'[{name}]\ntoken_sha256 = "{digest(token)}"\ndatasets = {list(datasets)}\n{more}\n'
