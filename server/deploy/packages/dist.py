"""Makes the packages of a release from finished programs: `make dist`.

dist/ then has the wheel, the source distribution, an archive of the programs with their manual, a bill of materials and
SHA-256 sums. The wheel is built from the source distribution, and its platform tag is checked. Wheel and archive have
the licences of the crates. Compiles nothing and publishes nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from bill import write_bill
from licenses import write_licenses

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "client/python"
PROGRAMS = ("forebay-server", "forebay")
LIBRARY = "lib_native.so"
BILL = "forebay.cdx.json"
LICENSES = "THIRD-PARTY-LICENSES.txt"
SUMS = "SHA256SUMS"
WHEEL_BYTES_MAX = 45_000_000


def main() -> int:
    """Make the packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="folder with the programs and the native module")
    parser.add_argument("--out", type=Path, required=True, help="folder that is replaced")
    parser.add_argument("--wheel-bytes-max", type=int, default=WHEEL_BYTES_MAX, help="largest wheel")
    parser.add_argument("--gzip-level", type=int, default=9, help="compression of the archive, 0 to 9")
    options = parser.parse_args()
    if sys.platform != "linux":
        print("dist: packages are made on Linux only", file=sys.stderr)
        return 2
    machine = platform.machine()
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_seconds())
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="forebay-dist-") as temporary:
        folder = Path(temporary)
        programs = strip_programs(options.programs, folder / "programs")
        crates = write_bill(ROOT, f"{machine}-unknown-linux-gnu", programs / BILL)
        licensed = write_licenses(crates, programs / LICENSES)
        source = make_source(options.out, folder / "source")
        wheel = make_wheel(source, programs, options.out)
        version = wheel.name.split("-")[1]
        archive = options.out / f"forebay-{version}-{machine}-unknown-linux-gnu.tar.gz"
        write_manual(programs, folder / "manual")
        make_archive(archive, programs, folder / "manual", options.gzip_level)
        shutil.copy(programs / BILL, options.out / f"forebay-{version}-{machine}.cdx.json")
    write_sums(options.out)
    for file in sorted(options.out.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file}")
    print(f"{len(crates)} crates in the bill of materials, {licensed} of them by others")
    return problems(wheel, options.wheel_bytes_max)


def commit_seconds() -> str:
    """Return the time of the checked out commit, which files in the wheel and the archive have."""
    return output("git", "log", "-1", "--format=%ct").strip()


def strip_programs(built: Path, folder: Path) -> Path:
    """Copy the programs and the native module without symbols."""
    folder.mkdir()
    for name in (*PROGRAMS, LIBRARY):
        if not (built / name).is_file():
            raise SystemExit(f"dist: {built} has no {name}: run `make build`")
        output("strip", "--strip-all" if name in PROGRAMS else "--strip-unneeded", "-o", folder / name, built / name)
    return folder


def make_source(out: Path, folder: Path) -> Path:
    """Make the source distribution."""
    folder.mkdir()
    command = (
        sys.executable,
        "setup.py",
        "--quiet",
        "egg_info",
        "--egg-base",
        folder,
        "sdist",
        "--dist-dir",
        out.resolve(),
    )
    output(*command, folder=PACKAGE)
    (source,) = out.glob("*.tar.gz")
    return source


def make_wheel(source: Path, programs: Path, out: Path) -> Path:
    """Build the wheel from the source distribution, with the given programs."""
    os.environ["FOREBAY_WHEEL_PROGRAMS"] = str(programs)
    flags = ("--quiet", "--no-deps", "--no-index", "--no-cache-dir", "--no-build-isolation", "--wheel-dir", out)
    output(sys.executable, "-m", "pip", "wheel", *flags, source)
    (wheel,) = out.glob("*.whl")
    return wheel


def write_manual(programs: Path, folder: Path) -> None:
    """Write man pages and shell completions of the programs."""
    for name in PROGRAMS:
        output(programs / name, "write-manual", folder)


def make_archive(archive: Path, programs: Path, manual: Path, level: int) -> None:
    """Pack the programs and their manual, with fixed owners and times."""
    top = archive.name.removesuffix(".tar.gz")
    members = {f"bin/{name}": programs / name for name in PROGRAMS}
    members |= {str(file.relative_to(manual)): file for file in manual.rglob("*") if file.is_file()}
    members |= {"LICENSE": ROOT / "LICENSE", BILL: programs / BILL, LICENSES: programs / LICENSES}
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    with gzip.GzipFile(archive, "wb", level, mtime=seconds) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, file in sorted(members.items()):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime = file.stat().st_size, seconds
            entry.mode = 0o755 if name.startswith("bin/") else 0o644
            with file.open("rb") as content:
                tar.addfile(entry, content)


def write_sums(out: Path) -> None:
    """Write a file that `sha256sum --check` reads."""
    files = sorted(file for file in out.iterdir() if file.name != SUMS)
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / SUMS).write_text("".join(lines))


def problems(wheel: Path, bytes_max: int) -> int:
    """Report a wheel that is too large, or whose programs need a newer C library than its tag states."""
    found: list[str] = []
    if wheel.stat().st_size > bytes_max:
        found.append(f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {bytes_max:,}")
    report = " ".join(output(sys.executable, "-m", "auditwheel", "show", wheel).split())
    tag = wheel.stem.split("-")[-1]
    if f'constrains the platform tag to "{tag}"' not in report and f'platform tag: "{tag}"' not in report:
        found.append(f"{wheel.name}: {report}")
    for line in found:
        print(f"dist: {line}", file=sys.stderr)
    return 1 if found else 0


def output(*command: str | os.PathLike[str], folder: Path = ROOT) -> str:
    """Run a command and return its output; print what it wrote if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(
            f"dist: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
