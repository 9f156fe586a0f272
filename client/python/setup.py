"""Builds the wheel and the source distribution; pyproject.toml has the metadata.

The wheel has the Python package, the programs `forebay-server` and `forebay`, and the native module. Cargo builds them
unless FOREBAY_WHEEL_PROGRAMS names a folder that has them; with the value `none`, the wheel has the Python package
only, for every platform. An editable install builds nothing. The source distribution has Cargo's workspace in the
folder `workspace`.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

HERE = Path(__file__).parent.resolve()
BUNDLED = HERE / "workspace"
# The bundled workspace of a source distribution, or that of the checkout.
WORKSPACE = BUNDLED if BUNDLED.is_dir() else HERE.parents[1]

PROGRAMS = ("forebay-server", "forebay")
CRATES = ("forebay-server", "forebay-cli", "forebay-native")
LIBRARY = "lib_native.dylib" if sys.platform == "darwin" else "lib_native.so"
MODULE = "_native.abi3.so"
# The tag of the native module: pyo3's feature abi3-py310.
PYTHON_TAG = "cp310"

# Files of the checkout that Cargo needs, as git's path specifications.
SOURCES = (
    *("Cargo.toml", "Cargo.lock", "LICENSE", "proto", "kernels", "server", "benches"),
    *("client/Cargo.toml", "client/src", "client/cli/Cargo.toml", "client/cli/src"),
    *("client/convert", "client/receive", "client/python/native"),
    *(":!benches/runs", ":!server/tests", ":!server/deploy", ":!server/fuzz/corpus"),
)

# Values of `e_machine` in the header of an ELF file.
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
# The oldest C library that has a tag of the form manylinux_2_N.
GLIBC_MINOR_MIN = 17


def version() -> str:
    """Return the version of Cargo's workspace, which is that of every package."""
    found = re.search(
        r'^\[workspace\.package\]\nversion = "(.+)"', (WORKSPACE / "Cargo.toml").read_text(), re.MULTILINE
    )
    if found is None:
        raise SetupError(f"{WORKSPACE}/Cargo.toml: expected a version in [workspace.package]")
    return found[1]


def built() -> Path:
    """Build the programs and the native module; return their folder."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise SetupError(
            "building forebay needs Cargo, which is not on the PATH: install Rust (https://rustup.rs), or set "
            "FOREBAY_WHEEL_PROGRAMS=none for the Python package without its programs"
        )
    packages = [word for crate in CRATES for word in ("--package", crate)]
    command = [cargo, "build", "--locked", "--release", "--lib", "--bins", *packages]
    subprocess.run(command, cwd=WORKSPACE, check=True)
    return WORKSPACE / os.environ.get("CARGO_TARGET_DIR", "target") / "release"


def platform_tag(files: list[Path]) -> str:
    """Return the tag of the oldest system that runs all files.

    It is that of the newest version of the C library that one of them names.
    """
    texts = [file.read_bytes() for file in files]
    minors = [int(minor) for text in texts for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=\0)", text)]
    if not minors:
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    machines = {struct.unpack_from("<H", text, 18)[0] for text in texts}
    if len(machines) > 1 or not machines <= set(ELF_MACHINES):
        raise SetupError(f"the programs are for unknown or different machines: ELF types {sorted(machines)}")
    return f"manylinux_2_{max(GLIBC_MINOR_MIN, *minors)}_{ELF_MACHINES[machines.pop()]}"


class PlatformWheel(bdist_wheel):
    """A wheel with the programs as scripts and, if it was built, the native module."""

    folder: Path | None = None

    def run(self) -> None:
        """Build the wheel."""
        named = os.environ.get("FOREBAY_WHEEL_PROGRAMS", "")
        if named != "none":
            self.folder = Path(named).resolve() if named else built()
            for name in PROGRAMS:
                if not (self.folder / name).is_file():
                    raise SetupError(f"{self.folder} has no program {name}")
        super().run()

    @property
    def library(self) -> Path | None:
        """The native module, if there is one."""
        file = self.folder / LIBRARY if self.folder is not None else None
        return file if file is not None and file.is_file() else None

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the interpreter, its ABI and the platform."""
        if self.folder is None:
            return super().get_tag()
        files = [self.folder / name for name in PROGRAMS]
        if self.library is None:
            return "py3", "none", platform_tag(files)
        return PYTHON_TAG, "abi3", platform_tag([*files, self.library])

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        """Add the programs to the wheel's folder, then write the file WHEEL."""
        if self.folder is not None:
            self.root_is_pure = False
            scripts = Path(self.bdist_dir) / self.data_dir / "scripts"
            scripts.mkdir(parents=True)
            for name in PROGRAMS:
                shutil.copy(self.folder / name, scripts)
                (scripts / name).chmod(0o755)
            if self.library is not None:
                shutil.copy(self.library, Path(self.bdist_dir) / "forebay" / MODULE)
            for pattern, name in (("*.cdx.json", "sboms"), ("THIRD-PARTY-LICENSES.txt", "licenses")):
                for file in self.folder.glob(pattern):
                    place = Path(wheelfile_base) / name
                    place.mkdir(exist_ok=True)
                    shutil.copy(file, place)
        super().write_wheelfile(wheelfile_base, *arguments)


class WorkspaceSdist(sdist):
    """A source distribution with the sources of the programs."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Fill the folder of the distribution."""
        super().make_release_tree(base_dir, files)
        target = Path(base_dir) / BUNDLED.name
        if WORKSPACE == BUNDLED:
            shutil.copytree(BUNDLED, target, ignore=shutil.ignore_patterns("target"))
            return
        command = ["git", "ls-files", "-z", "--", *SOURCES]
        listed = subprocess.run(command, cwd=WORKSPACE, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(WORKSPACE / name, target / name)


setup(version=version(), cmdclass={"bdist_wheel": PlatformWheel, "sdist": WorkspaceSdist})
