"""The code blocks of the READMEs, and a session that runs those of one document as its reader would.

A session works in a folder that has what a checkout has after `make build`: the tracked files, and the programs under
test in `target/release`. Python blocks share one namespace, shell blocks run in bash with the same folder and
environment. A server that a block starts keeps running until the session ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.daemon import environment, poll
from harness.repository import PACKAGES, ROOT
from harness.serving import server_binary

BLOCK_SECONDS_MAX = 120.0
SHELLS = {"sh", "bash", "console"}
DATA = {"json", "toml", "yaml"}

_FENCE = re.compile(r"^( *)```([\w-]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_ADDRESSES = {
    "127.0.0.1:8815": re.compile(r"^listening on grpc://(\S+)$", re.MULTILINE),
    "127.0.0.1:9815": re.compile(r"^metrics on http://([^/\s]+)", re.MULTILINE),
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    code: str

    @property
    def name(self) -> str:
        """The document and the block's first line, which identify it in lists."""
        return f"{self.document}: {self.code.splitlines()[0].split('  #')[0].strip()}"

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def readmes() -> list[str]:
    """The paths of every README.md that is or may be committed."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "README.md", "**/README.md"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    return sorted(name for name in set(names.split("\0")) if name and (ROOT / name).exists())


def blocks_of(document: str, text: str) -> list[Block]:
    """Every fenced block of a text, in order."""
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(document, line, match[2], textwrap.dedent(match[3])))
    return found


def blocks(document: str) -> list[Block]:
    """Every fenced block of a document of the repository, in order."""
    return blocks_of(document, (ROOT / document).read_text())


@dataclass
class Session:
    """A reader's shell and Python, in a folder that is removed by the caller.

    Text is replaced as `substitutions` says before it runs. A server that the document starts gets free ports, and its
    default addresses are replaced by these from then on. Python blocks run in this process: the caller changes to
    `folder` first.
    """

    folder: Path
    substitutions: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, Any] = field(default_factory=dict[str, Any])
    printed: str = ""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def __post_init__(self) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        for name in {name.split("/")[0] for name in listed.stdout.split("\0") if name}:
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "target").mkdir()
        (self.folder / "target/release").symlink_to(Path(server_binary()).parent.absolute())
        (self.folder / ".venv").symlink_to(sys.prefix)

    def run(self, block: Block) -> None:
        """Run a block; raises what it raises, or AssertionError with the output of a failed command."""
        code = block.code
        for written, actual in self.substitutions.items():
            code = code.replace(written, actual)
        if block.language == "python":
            exec(compile(code, block.place, "exec"), self.names)
        else:
            self._shell(block, code)

    def _shell(self, block: Block, code: str) -> None:
        log = self.folder / f"block-{block.line}.log"
        with log.open("wb") as out:
            command = ["bash", "-eu", "-o", "pipefail", "-c", commands(block.language, code)]
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)

        def served() -> dict[str, str]:
            text = log.read_text(errors="replace")
            return {written: found[1] for written, line in _ADDRESSES.items() if (found := line.search(text))}

        ended = poll(lambda: process.poll() is not None or len(served()) == len(_ADDRESSES), seconds=BLOCK_SECONDS_MAX)
        text = log.read_text(errors="replace")
        assert ended, f"{block.place}: not done after {BLOCK_SECONDS_MAX:.0f} s:\n{text}"
        if process.poll() is None:
            self.substitutions |= served()
        else:
            assert process.returncode == 0, f"{block.place}: exit code {process.returncode}:\n{text}"
        self.printed += text

    def environment(self) -> Mapping[str, str]:
        """The environment of the shell: this Python first on the PATH, free ports for servers, and a separate home."""
        programs = os.pathsep.join([str(self.folder / ".venv/bin"), os.environ["PATH"]])
        more = {"PATH": programs, "HOME": str(self.folder), "PYTHONPATH": os.pathsep.join(map(str, PACKAGES))}
        more |= {"FOREBAY_LISTEN": "127.0.0.1:0", "FOREBAY_METRICS_LISTEN": "127.0.0.1:0"}
        if address := self.substitutions.get("127.0.0.1:8815"):
            more["FOREBAY_SERVER"] = f"grpc://{address}"
        return environment(more)

    def close(self) -> None:
        """End the processes that the blocks started."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def commands(language: str, code: str) -> str:
    """The commands of a shell block. In a console session they follow a prompt, and the other lines are output."""
    lines = code.splitlines()
    if language == "console" and any(line.startswith("$ ") for line in lines):
        return "\n".join(line[2:] for line in lines if line.startswith(("$ ", "> ")))
    return code
