"""Records the machine, the driver and the versions, and verifies the files of an unpacked kit."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

from device import driver_problem, find_nvrtc, torch_problem
from parity import sanitizer
from step import Failed, emit, run

QUERY = "name,driver_version,compute_cap,memory.total,pcie.link.gen.max,pcie.link.width.max,clocks.max.sm"


def output_of(*command: str) -> str | None:
    """Return what a program prints; None if it is missing or fails."""
    program = shutil.which(command[0])
    if program is None:
        return None
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def verified_manifest(root: Path) -> dict[str, object] | None:
    """Return the manifest of a kit without its file list, after comparing each file; None in a checkout."""
    path = root / "MANIFEST.json"
    if not path.exists():
        return None
    manifest = json.loads(path.read_text())
    for name, digest in manifest.pop("files").items():
        file = root / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise Failed(f"{name} is missing, or differs from MANIFEST.json; unpack the kit again")
    return manifest


def torch_versions() -> dict[str, object] | None:
    """Return torch's versions and device; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    found: dict[str, object] = {"torch": torch.__version__, "cuda": torch.version.cuda, "problem": torch_problem()}
    if torch.cuda.is_available():
        found |= {"device": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability()}
    return found


def main() -> None:
    """Print the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    root = parser.parse_args().root
    nvrtc, smi = find_nvrtc(), output_of("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv")
    emit(
        kit=verified_manifest(root),
        commit=output_of("git", "-C", str(root), "rev-parse", "HEAD"),
        server=output_of(os.environ["FOREBAY_SERVER_BIN"], "--version"),
        machine=platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        driver_problem=driver_problem(),
        gpus=None if smi is None else smi.splitlines()[1:],
        gpu_fields=QUERY.split(","),
        torch=torch_versions(),
        nvrtc=None if nvrtc is None else nvrtc.name,
        compute_sanitizer=output_of(sanitizer() or "compute-sanitizer", "--version"),
    )


if __name__ == "__main__":
    run(main)
