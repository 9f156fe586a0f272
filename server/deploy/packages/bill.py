"""The bill of materials of the programs: the crates that are linked into them, in CycloneDX's JSON.

Reads what Cargo resolved; never uses the network. Python packages are not in it: the wheel's metadata names them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

# The crates of the programs and of the native module.
CRATES = ("forebay-server", "forebay-cli", "forebay-native")


class Crate(NamedTuple):
    """A crate in one version. Crates.io is the only source, so that this identifies it."""

    name: str
    version: str


def write_bill(workspace: Path, target: str, file: Path) -> list[dict[str, Any]]:
    """Write the bill for a target such as `x86_64-unknown-linux-gnu`; return the metadata of its crates."""
    linked = linked_crates(workspace, target)
    metadata = json.loads(cargo(workspace, "metadata", "--format-version", "1", "--filter-platform", target))
    packages: dict[str, dict[str, Any]] = {package["id"]: package for package in metadata["packages"]}
    sums = checksums(workspace)
    crates = [package for package in packages.values() if named(package) in linked]
    components = [component(package, sums) for package in crates]
    own = sorted(crate for crate in linked if crate.name in CRATES)
    dependencies = [{"ref": "forebay", "dependsOn": [reference(crate) for crate in own]}]
    for node in metadata["resolve"]["nodes"]:
        crate = named(packages[node["id"]])
        if crate in linked:
            needed = {named(packages[one["pkg"]]) for one in node["deps"] if is_linked(one)} & linked
            dependencies.append({"ref": reference(crate), "dependsOn": [reference(one) for one in sorted(needed)]})
    application = {"type": "application", "bom-ref": "forebay", "name": "forebay", "version": own[0].version}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": application},
        "components": components,
        "dependencies": dependencies,
    }
    file.write_text(json.dumps(bill, indent=1) + "\n")
    return crates


def linked_crates(workspace: Path, target: str) -> set[Crate]:
    """Return the crates that are linked into the programs, without those that only run during a build."""
    packages = [word for name in CRATES for word in ("--package", name)]
    options = ("--edges", "normal,no-proc-macro", "--target", target, "--prefix", "none", "--format", "{p}")
    lines = cargo(workspace, "tree", *options, *packages).splitlines()
    words = [line.split() for line in lines if line]
    return {Crate(name, version.removeprefix("v")) for name, version, *_ in words}


def checksums(workspace: Path) -> dict[Crate, str]:
    """Return the SHA-256 sums that Cargo.lock has for the archives of crates."""
    found: dict[Crate, str] = {}
    for block in (workspace / "Cargo.lock").read_text().split("[[package]]")[1:]:
        values = dict(line.split(" = ", 1) for line in block.splitlines() if line.endswith('"') and " = " in line)
        if "checksum" in values:
            found[Crate(json.loads(values["name"]), json.loads(values["version"]))] = json.loads(values["checksum"])
    return found


def component(package: dict[str, Any], sums: dict[Crate, str]) -> dict[str, Any]:
    """Return the entry of a crate."""
    crate = named(package)
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(crate),
        "name": crate.name,
        "version": crate.version,
        "purl": f"pkg:cargo/{crate.name}@{quote(crate.version)}",
    }
    if package["license"]:
        # Some crates separate alternatives with a slash, which Cargo still accepts.
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if crate in sums:
        entry["hashes"] = [{"alg": "SHA-256", "content": sums[crate]}]
    return entry


def reference(crate: Crate) -> str:
    """Return the name of a crate within the bill."""
    return f"{crate.name}@{crate.version}"


def named(package: dict[str, Any]) -> Crate:
    """Return the identity of a package in Cargo's metadata."""
    return Crate(package["name"], package["version"])


def is_linked(dependency: dict[str, Any]) -> bool:
    """Whether an edge of Cargo's graph is a normal dependency, not one of builds or tests."""
    return any(kind["kind"] is None for kind in dependency["dep_kinds"])


def cargo(workspace: Path, *arguments: str) -> str:
    """Run Cargo and return its output."""
    command = ["cargo", *arguments, "--offline", "--locked"]
    return subprocess.run(command, cwd=workspace, check=True, capture_output=True, text=True).stdout
