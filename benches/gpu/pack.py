"""Packs what a machine with a GPU needs to run check.sh: stripped programs, Python sources, scripts and a manifest.

    make gpu-kit

Fails, and leaves no archive, if the archive exceeds the limit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = "forebay-gpu-kit"
LIMIT_BYTES = 48_000_000
NATIVE = "client/python/src/forebay/_native.abi3.so"
# Sources of the steps, by glob below the repository's root.
SOURCES = (
    "LICENSE",
    "benches/gpu/*.sh",
    "benches/gpu/*.py",
    "benches/gpu/README.md",
    "benches/gpu/requirements.txt",
    "client/python/src/forebay/**/*.py",
    "client/python/src/forebay/py.typed",
    "client/python/examples/flights_server.py",
    "benches/peers/environments.py",
    "benches/peers/lineup.py",
    "benches/peers/process_tree.py",
    "benches/peers/rates.py",
    "benches/peers/visit.py",
    "benches/peers/contenders/features.py",
    "benches/peers/contenders/forebay_*.py",
    "benches/peers/contenders/polars_hash.py",
    "benches/peers/contenders/protocol.py",
    "benches/peers/contenders/torch_loader.py",
    "server/tests/harness/src/harness/__init__.py",
    "server/tests/harness/src/harness/repository.py",
    "server/tests/harness/src/harness/benches/*.py",
)


def built_test(messages: Path) -> Path:
    """Return the test program that cargo reports in its JSON messages."""
    for line in messages.read_text().splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            return Path(message["executable"])
    sys.exit(f"pack.py: {messages} names no test program")


def stage(folder: Path, programs: dict[str, Path]) -> None:
    """Fill the folder with programs, by their path in it and stripped, and with sources."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, program in programs.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, target)
        with target.open("rb") as file:
            is_program = file.read(4) == b"\x7fELF"
        if is_program:
            subprocess.run(["strip", str(target)], check=True)
    for pattern in SOURCES:
        found = [path for path in ROOT.glob(pattern) if path.is_file()]
        if not found:
            sys.exit(f"pack.py: nothing matches {pattern}")
        for path in found:
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def manifest(folder: Path) -> dict[str, object]:
    """Return the versions, the commit and the SHA-256 of each file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "commit": _output("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "uncommitted_changes": bool(_output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")),
        "server": _output(str(folder / "bin/forebay-server"), "--version"),
        "rustc": _output("rustc", "--version"),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "files": {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }


def compress(folder: Path, archive: Path, preset: int) -> int:
    """Write the archive; return its size. Owners and times of the files do not enter it."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with lzma.open(archive, "wb", preset=preset) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, NAME, filter=plain)
    return archive.stat().st_size


def main() -> None:
    """Pack, and check the size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True, help="forebay-server")
    parser.add_argument("--gpu-kernel", type=Path, required=True, help="gpu-kernel")
    parser.add_argument("--native", type=Path, required=True, help="native module of the Python package")
    parity = parser.add_mutually_exclusive_group(required=True)
    parity.add_argument("--parity", type=Path, help="test program of the kernels, with CUDA")
    parity.add_argument("--parity-messages", type=Path, help="cargo's JSON messages about that program")
    parser.add_argument("--out", type=Path, default=ROOT / "target/gpu-kit", help="folder (%(default)s)")
    parser.add_argument("--limit-bytes", type=int, default=LIMIT_BYTES, help="limit of the archive (%(default)s)")
    parser.add_argument("--preset", type=int, default=9, help="effort of the compression, 0 to 9 (%(default)s)")
    given = parser.parse_args()
    parity_program = given.parity or built_test(given.parity_messages)
    programs = {
        "bin/forebay-server": given.server,
        "bin/gpu-kernel": given.gpu_kernel,
        "bin/kernel-parity": parity_program,
        NATIVE: given.native,
    }
    for program in programs.values():
        if not program.is_file() or not os.access(program, os.X_OK):
            sys.exit(f"pack.py: {program} is missing, or not a program")
    folder, archive = given.out / NAME, given.out / f"{NAME}.tar.xz"
    archive.unlink(missing_ok=True)
    stage(folder, programs)
    (folder / "MANIFEST.json").write_text(json.dumps(manifest(folder), indent=1) + "\n")
    size = compress(folder, archive, given.preset)
    if size > given.limit_bytes:
        archive.unlink()
        sys.exit(f"pack.py: the kit has {size:,} bytes, more than {given.limit_bytes:,}: make its files smaller")
    print(f"{archive}: {size:,} bytes")


def _output(*command: str) -> str | None:
    """Return what a program prints; None if it cannot be run."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


if __name__ == "__main__":
    main()
