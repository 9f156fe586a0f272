"""The licences of the crates that are linked into the programs, with the texts that the crates' archives have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# How names of files with licences begin.
PREFIXES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
RULE = "=" * 80


def write_licenses(packages: Iterable[dict[str, Any]], file: Path) -> int:
    """Write the licences of packages of Cargo's metadata that are not of this workspace; return their number.

    A text that several crates share is written once.
    """
    crates = sorted((one for one in packages if one["source"]), key=lambda one: (one["name"], one["version"]))
    owners: dict[str, list[str]] = defaultdict(list)
    lines = ["Forebay's programs contain the following crates, under these licences.", ""]
    for crate in crates:
        title = f"{crate['name']} {crate['version']}"
        texts = license_texts(Path(crate["manifest_path"]).parent)
        for text in texts:
            owners[text].append(title)
        expression = crate["license"] or "see its licence file"
        missing = "" if texts else f" (its archive has no text; authors: {', '.join(crate['authors']) or 'not named'})"
        lines.append(f"{title}: {expression}{missing}")
        if crate["repository"]:
            lines.append(f"  {crate['repository']}")
    for text, titles in owners.items():
        lines += ["", RULE, f"Text of {', '.join(titles)}", RULE, "", text]
    file.write_text("\n".join(lines) + "\n")
    return len(crates)


def license_texts(folder: Path) -> list[str]:
    """Return the licences and notices in the folder of a crate."""
    files = sorted(file for file in folder.iterdir() if file.name.upper().startswith(PREFIXES) and file.is_file())
    texts = [file.read_text(errors="replace").replace("\r\n", "\n").strip() for file in files]
    return [text for text in dict.fromkeys(texts) if text]
