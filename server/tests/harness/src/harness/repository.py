"""Paths of the checkout under test."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[5]
PACKAGES = (ROOT / "client/python/src", ROOT / "server/tests/harness/src")


def package_environment() -> dict[str, str]:
    """Return the environment for a Python subprocess that imports this checkout's packages."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PACKAGES))}
