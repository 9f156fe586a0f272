"""The packages of `make dist`, made from the programs under test: their contents, and that the wheel alone is enough.

The wheel is installed into an environment that has pyarrow and NumPy and neither Rust nor a checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pytest

from harness.archives import unpack
from harness.documents import example
from harness.repository import ROOT
from harness.serving import server_binary

BUILT = Path(server_binary()).parent
PROGRAMS = ("forebay-server", "forebay")
# The programs under test have the checks of a debug build.
DEBUG_WHEEL_BYTES_MAX = 1_000_000_000
IMPORTED_MODULES_MAX = 300

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="packages are made on Linux")]


class Packages(NamedTuple):
    """The folder with the packages, and the files in it."""

    folder: Path
    wheel: Path
    source: Path
    archive: Path


def make(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Make the packages without compressing them."""
    settings = out.with_suffix(".cfg")
    settings.write_text("[bdist_wheel]\ncompression = stored\n")
    command = [
        sys.executable,
        ROOT / "server/deploy/packages/dist.py",
        "--programs",
        BUILT,
        "--out",
        out,
        "--gzip-level",
        "1",
        *options,
    ]
    return run(*command, env={**os.environ, "DIST_EXTRA_CONFIG": str(settings)})


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("packages") / "dist"
    made = make(folder, "--wheel-bytes-max", str(DEBUG_WHEEL_BYTES_MAX))
    assert made.returncode == 0, made.stderr
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*-linux-gnu.tar.gz")
    (source,) = {*folder.glob("*.tar.gz")} - {archive}
    return Packages(folder, wheel, source, archive)


class Installed:
    """An environment with pyarrow, NumPy and the wheel."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin/python"
        self.scripts = folder / "bin"
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install")
        done = run(
            *pip, "--quiet", "--no-index", "--no-deps", "--no-cache-dir", wheel, env=plain_environment(PATH=os.defpath)
        )
        assert done.returncode == 0, done.stderr
        (site,) = (folder / "lib").glob("python*/site-packages")
        for name in ("numpy", "pyarrow"):
            parts = {file.parts[0] for file in distribution(name).files or ()} - {".."}
            for part in parts - {"__pycache__"}:
                (site / part).symlink_to(packages_folder() / part)

    def run(self, code: str, **variables: str) -> str:
        """Run Python code in an empty folder, without Rust or another server on the PATH."""
        done = run(self.python, "-W", "error", "-c", code, env=plain_environment(PATH="/nowhere", **variables))
        assert done.returncode == 0, done.stderr
        return done.stdout


def packages_folder() -> Path:
    """The folder of packages of the environment that runs the tests."""
    return Path(pa.__file__).parents[1]


def plain_environment(**variables: str) -> dict[str, str]:
    """An environment without settings of Forebay, Python and Rust."""
    return {"HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", **variables}


@pytest.fixture(scope="module")
def installed(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("environment"), packages.wheel)


def cargo_version() -> str:
    """The version of Cargo's workspace."""
    found = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_every_package_has_the_version_of_the_workspace(packages: Packages, installed: Installed):
    version = cargo_version()
    for program in PROGRAMS:
        assert run(installed.scripts / program, "--version", env={}).stdout == f"{program} {version}\n"
    assert installed.run("import forebay; print(forebay.__version__)") == f"{version}\n"
    assert packages.wheel.name.startswith(f"forebay-{version}-cp310-")
    assert packages.source.name == f"forebay-{version}.tar.gz"
    assert packages.archive.name.startswith(f"forebay-{version}-")
    # What a registry gives to crates that depend on another.
    listed = re.findall(r'^forebay-\w+ = .*version = "(.+?)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert {*listed} == {version}


def test_the_wheel_trains_the_readme_example(installed: Installed, flights_folder: Path):
    code = example("torch").replace("data/flights", str(flights_folder))
    assert str(flights_folder) in code
    # PyTorch and its dependencies are those of the tests; a folder on PYTHONPATH enables no editable install.
    seen = """
from forebay._client import server_program
print(server_program.server_program(), data.stats()["rows"], batch["dense"].dtype)
"""
    printed = installed.run(code + seen, PYTHONPATH=str(packages_folder())).split()
    assert printed == [str(installed.scripts / "forebay-server"), str(3 * 327_346), "torch.float32"]


def test_the_wheel_receives_with_its_native_module(installed: Installed, tiny_folder: Path):
    code = f"""
import forebay as fb
from forebay import _native
with fb.connect(fb.local(tiny={str(tiny_folder)!r})) as client:
    batches = client.stream("tiny", fb.Plan(outputs={{"id": fb.cols("id")}}))
    print(sum(len(batch["id"]) for batch in batches), _native.__file__)
"""
    rows, module = installed.run(code).split()
    assert (rows, Path(module).name) == ("100", "_native.abi3.so")


def test_importing_the_package_needs_pyarrow_and_numpy_only_and_few_modules(installed: Installed):
    code = """
import sys
import numpy, pyarrow.flight
modules = {*sys.modules}
import forebay
print(*{*sys.modules} - modules)
"""
    loaded = installed.run(code).split()
    # Rather than seconds, which depend on the machine and on what else it does.
    assert len(loaded) < IMPORTED_MODULES_MAX
    modules = {name.split(".")[0] for name in loaded}
    others = {name for name in modules - sys.stdlib_module_names if not name.startswith("_sysconfigdata")}
    assert "forebay" in others
    assert others <= {"forebay", "numpy", "pyarrow"}


def test_the_tag_of_the_wheel_is_that_of_its_programs(packages: Packages):
    assert re.fullmatch(r"forebay-[\d.]+-cp310-abi3-manylinux_2_\d+_(x86_64|aarch64)\.whl", packages.wheel.name)
    glibc = {int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols(BUILT / "forebay-server"))}
    assert f"manylinux_2_{max(glibc)}_" in packages.wheel.name


def symbols(program: Path) -> str:
    """The versioned symbols that a program needs."""
    return run("objdump", "--dynamic-syms", program).stdout


def test_a_wheel_over_the_limit_fails(tmp_path: Path):
    made = make(tmp_path / "dist", "--wheel-bytes-max", "1000")
    assert made.returncode == 1
    assert re.search(r"dist: forebay-\S+\.whl has [\d,]+ bytes, more than 1,000", made.stderr)


def test_the_archive_has_programs_manual_and_completions(packages: Packages, tmp_path: Path):
    with tarfile.open(packages.archive) as tar:
        unpack(tar, tmp_path)
    (folder,) = tmp_path.iterdir()
    for program in PROGRAMS:
        assert run(folder / "bin" / program, "--version", env={}).returncode == 0
        page = (folder / f"share/man/man1/{program}.1").read_text().replace("\\-", "-")
        assert "FOREBAY_CONFIG" in page
        assert f"{program} {cargo_version()}" in page
        completions = folder / f"share/bash-completion/completions/{program}.bash"
        assert run("bash", "-n", completions).returncode == 0
        assert "--config" in completions.read_text()
        assert (folder / f"share/zsh/site-functions/_{program}").read_text().startswith(f"#compdef {program}\n")
        assert f"complete -c {program}" in (folder / f"share/fish/vendor_completions.d/{program}.fish").read_text()
    assert "streams" in (folder / "share/man/man1/forebay-load.1").read_text()
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_sums_are_those_of_the_files(packages: Packages):
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=packages.folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    checked = {line.split(":")[0] for line in done.stdout.splitlines()}
    assert checked == {file.name for file in packages.folder.iterdir()} - {"SHA256SUMS"}


def test_the_bill_of_materials_lists_what_is_linked(packages: Packages):
    (file,) = packages.folder.glob("*.cdx.json")
    bill: dict[str, Any] = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "forebay")
    crates = {component["name"]: component for component in bill["components"]}
    assert {"forebay-server", "forebay-cli", "forebay-native", "arrow-array", "tonic", "pyo3"} <= crates.keys()
    # Crates of builds, tests and the other programs.
    assert not {"cc", "prost-build", "proptest", "forebay-prepare", "serde_derive"} & crates.keys()
    assert all(crate["purl"] == f"pkg:cargo/{crate['name']}@{quote(crate['version'])}" for crate in bill["components"])
    assert all(crate["licenses"] for crate in bill["components"])
    assert all(crate["hashes"] for name, crate in crates.items() if not name.startswith("forebay-"))
    needed = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert [ref for ref in needed["forebay"] if ref.startswith("forebay-server@")]
    assert [ref for ref in needed[f"forebay-server@{cargo_version()}"] if ref.startswith("tonic@")]
    with zipfile.ZipFile(packages.wheel) as wheel:
        (inside,) = [name for name in wheel.namelist() if "/sboms/" in name]
        assert wheel.read(inside) == file.read_bytes()


def test_the_licences_of_linked_crates_are_in_the_wheel_and_the_archive(packages: Packages):
    with zipfile.ZipFile(packages.wheel) as wheel:
        (inside,) = [name for name in wheel.namelist() if name.endswith("/licenses/THIRD-PARTY-LICENSES.txt")]
        text = wheel.read(inside).decode()
    with tarfile.open(packages.archive) as tar:
        (member,) = [one for one in tar.getmembers() if one.name.endswith("/THIRD-PARTY-LICENSES.txt")]
        file = tar.extractfile(member)
        assert file is not None
        assert file.read().decode() == text
    (bill,) = packages.folder.glob("*.cdx.json")
    crates = json.loads(bill.read_text())["components"]
    titles, _, texts = text.partition("=" * 80)
    for crate in crates:
        named = f"\n{crate['name']} {crate['version']}: "
        assert (named in titles) != crate["name"].startswith("forebay-"), crate["name"]
    assert "Permission is hereby granted, free of charge" in texts
    assert "Text of " in texts


def test_the_source_distribution_has_the_whole_workspace(packages: Packages, tmp_path: Path):
    with tarfile.open(packages.source) as tar:
        unpack(tar, tmp_path)
    (workspace,) = tmp_path.glob("*/workspace")
    cargo = shutil.which("cargo")
    assert cargo
    # Only crates for this machine have been downloaded.
    (host,) = re.findall(r"host: (.+)", run(cargo, "--version", "--verbose").stdout)
    options = ("--offline", "--locked", "--format-version", "1", "--filter-platform", host)
    listed = run(cargo, "metadata", *options, "--manifest-path", workspace / "Cargo.toml")
    assert listed.returncode == 0, listed.stderr
    targets = [
        (package["name"], target["src_path"])
        for package in json.loads(listed.stdout)["packages"]
        if package["source"] is None
        for target in package["targets"]
        if {"lib", "bin", "cdylib"} & {*target["kind"]}
    ]
    assert {"forebay-server", "forebay-cli", "forebay-native"} <= {name for name, _ in targets}
    assert [path for _, path in targets if not Path(path).is_file()] == []
    included = [
        (file, name)
        for file in workspace.rglob("*.rs")
        for name in re.findall(r'include(?:_str|_bytes)?!\("([^"]+)"\)', file.read_text())
    ]
    assert included
    assert [(file, name) for file, name in included if not (file.parent / name).is_file()] == []


def test_a_wheel_without_programs_is_for_every_platform(packages: Packages, tmp_path: Path):
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-cache-dir")
    build += ("--no-build-isolation", "--wheel-dir", tmp_path, packages.source)
    done = run(*build, env={**os.environ, "FOREBAY_WHEEL_PROGRAMS": "none"})
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"forebay-{cargo_version()}-py3-none-any.whl"
    assert wheel.stat().st_size < 1_000_000
    done = run(*build, env={**os.environ, "FOREBAY_WHEEL_PROGRAMS": str(tmp_path)})
    assert done.returncode != 0
    assert f"{tmp_path} has no program forebay-server" in done.stderr + done.stdout
    done = run(*build, env={**os.environ, "FOREBAY_WHEEL_PROGRAMS": "", "PATH": "/nowhere"})
    assert done.returncode != 0
    assert "building forebay needs Cargo" in done.stderr + done.stdout


def test_the_crates_for_a_registry_are_packaged_with_their_metadata(tmp_path: Path):
    cargo = shutil.which("cargo")
    assert cargo
    names = [f"forebay-{name}" for name in ("proto", "kernels", "client", "settings", "order", "written", "convert")]
    selected = [word for name in names for word in ("--package", name)]
    flags = ("--offline", "--locked", "--no-verify", "--allow-dirty", "--manifest-path", ROOT / "Cargo.toml")
    done = run(cargo, "package", *flags, "--target-dir", tmp_path, *selected)
    assert done.returncode == 0, done.stderr
    crates = {file.name: file for file in (tmp_path / "package").glob("*.crate")}
    assert crates.keys() == {f"{name}-{cargo_version()}.crate" for name in names}
    for file in crates.values():
        with tarfile.open(file) as tar:
            manifest = tar.extractfile(f"{file.stem}/Cargo.toml")
            assert manifest
            text = manifest.read().decode()
            assert all(f"\n{key} = " in text for key in ("description", "license", "readme", "keywords", "categories"))
            assert f"{file.stem}/README.md" in tar.getnames()
