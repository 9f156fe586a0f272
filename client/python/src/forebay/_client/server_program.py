"""Finds the program `forebay-server` for private servers: named, installed with this package, on the PATH or built.

Starts nothing. The wheel installs the program among the environment's scripts, whose folder need not be on the PATH.
"""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import distributions
from pathlib import Path

NAME = "forebay-server"

PROFILES = ["release", "demo"]
"""Profiles that a checkout may have built, the preferred one first: `make build` and `make demo`."""


def server_program() -> str:
    """Return the path of the program, or raise FileNotFoundError."""
    named = os.environ.get("FOREBAY_SERVER_BIN")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise FileNotFoundError(f"FOREBAY_SERVER_BIN={named} is not an executable program")
        return named
    package = Path(__file__).parent.parent
    found = _installed(package.parent) or shutil.which(NAME)
    if found is not None:
        return found
    checkout = _checkout(package)
    if checkout is None:
        raise FileNotFoundError(
            f"{NAME} was not found: this installation of the package has no programs for {system()}. Install the "
            "package's wheel for it, or install from source, which needs Rust; else add the program's folder to the "
            "PATH, or set FOREBAY_SERVER_BIN to the program. fb.connect reads from a server elsewhere without it"
        )
    for profile in PROFILES:
        built = checkout / "target" / profile / NAME
        if os.access(built, os.X_OK):
            return str(built)
    raise FileNotFoundError(
        f"{NAME} was not found: run `make build` in {checkout}, add its folder to the PATH, or set "
        "FOREBAY_SERVER_BIN to the program"
    )


def system() -> str:
    """Return the operating system and the processor, such as ``Linux x86_64``."""
    return f"{platform.system()} {platform.machine()}"


def _installed(site: Path) -> str | None:
    """Return the program that was installed with the package in this folder of packages."""
    listed = [
        Path(str(file.locate()))
        for distribution in distributions(name="forebay", path=[str(site)])
        for file in distribution.files or ()
        if file.name == NAME
    ]
    # `pip install --target` moves the scripts and does not update the list.
    for program in [*listed, site / "bin" / NAME]:
        if program.is_file() and os.access(program, os.X_OK):
            return os.path.normpath(program)
    return None


def _checkout(package: Path) -> Path | None:
    """Return the repository that the package was installed from in editable mode."""
    found = (folder for folder in package.parents if folder / "client/python/src/forebay" == package)
    return next(found, None)
