"""An environment a peer under .venv/peers, made from its pinned requirements when they change.

PyTorch and its libraries are some gigabytes, so an environment does not hold its own: a .pth file names the project's
environment behind its own packages, and what a peer pins otherwise (another numpy, another pyarrow) comes first.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements"
ENVIRONMENTS = HERE.parents[1] / ".venv" / "peers"
STAMP = "made-from"


class NotInstalled(Exception):
    """A peer's packages cannot be had here."""


def python_of(environment: str) -> Path:
    """Return the interpreter of a peer's environment, made or renewed where it has to be."""
    if not environment:
        return Path(sys.executable)
    folder, requirements = ENVIRONMENTS / environment, REQUIREMENTS / f"{environment}.txt"
    # The shared packages are part of what an environment is.
    shared = sysconfig.get_paths()["purelib"]
    made_from = hashlib.sha256(shared.encode() + requirements.read_bytes()).hexdigest()
    stamp, python = folder / STAMP, folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == made_from:
        return python
    print(f"installing {environment}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False)
    own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (own / "project.pth").write_text(shared + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-r", str(requirements)]
    done = subprocess.run([*command, "--disable-pip-version-check"], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise NotInstalled(f"not installed: {lines[-1]}")
    stamp.write_text(made_from)
    return python
