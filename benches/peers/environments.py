"""One environment per peer under .venv/peers, rebuilt when its pinned requirements change.

PyTorch and its libraries take gigabytes, so all environments share the project's: a .pth file puts the project's
packages after the environment's own, so versions that a peer pins (of NumPy or pyarrow, for example) take precedence.
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
    """A peer's packages cannot be installed."""


def python_of(environment: str) -> Path:
    """Return the interpreter of a peer's environment; create or rebuild it if needed."""
    if not environment:
        return Path(sys.executable)
    folder, requirements = ENVIRONMENTS / environment, REQUIREMENTS / f"{environment}.txt"
    # The shared packages are part of the environment's identity.
    shared = sysconfig.get_paths()["purelib"]
    digest = hashlib.sha256(shared.encode() + requirements.read_bytes()).hexdigest()
    stamp, python = folder / STAMP, folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"installing {environment}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False)
    own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (own / "project.pth").write_text(shared + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-r", str(requirements)]
    done = subprocess.run([*command, "--disable-pip-version-check"], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output from pip"]
        raise NotInstalled(f"not installed: {lines[-1]}")
    stamp.write_text(digest)
    return python
