"""Tar archives of samples, written by the standard library."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

Entry = tuple[str, bytes]


def tar_bytes(entries: Iterable[Entry | tarfile.TarInfo], form: int = tarfile.PAX_FORMAT) -> bytes:
    """An archive of files, and of entries of other kinds without contents."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            archive.addfile(info, io.BytesIO(entry[1]))
    return out.getvalue()


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    """An entry of another kind, such as a link."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = "elsewhere"
    return info


def write_tar(path: Path, entries: Iterable[Entry | tarfile.TarInfo], form: int = tarfile.PAX_FORMAT) -> Path:
    """Write an archive and return its path."""
    path.write_bytes(tar_bytes(entries, form))
    return path
