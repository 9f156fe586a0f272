"""Links and anchors of the documents resolve, and every chapter of the book is in its summary."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from harness.documents import BOOK, README, ROOT, anchors, documents, links, paths

README_LINES_MAX = 200
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def tracked() -> set[Path]:
    """What a clone holds: committed files, files to be committed, and the folders of both."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    files = {ROOT / name for name in names.split("\0") if name}
    return files.union(*(file.parents for file in files))


def problem(document: Path, target: str, known: set[Path]) -> str | None:
    """What is wrong with a link, or None."""
    if ELSEWHERE.match(target):
        return None
    path, _, anchor = target.partition("#")
    file = (document.parent / unquote(path)).resolve() if path else document
    if not file.exists() or file not in known:
        return f"{target}: no such file in the repository"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
        return f"{target}: no such heading"
    return None


def test_links_and_anchors_resolve() -> None:
    known = tracked()
    wrong = [
        f"{document.relative_to(ROOT)}: {found}"
        for document in documents()
        for target in links(document.read_text())
        if (found := problem(document, target, known))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](other.md)", False),
        ("[a](other.md#two-words-1)", False),
        ("[`a`](other.md#one)", True),
        ("[a](absent.md)", True),
        ("![a](absent.png)", True),
        ("[a](ignored.md)", True),
        ("[a](#here)", False),
        ("[a](#there)", True),
        ("[a](https://example.org/absent)", False),
        ("`[a](absent.md)`", False),
        ("```\n[a](absent.md)\n```\n", False),
    ],
)
def test_link_check_finds_broken_links(tmp_path: Path, text: str, wrong: bool) -> None:
    (tmp_path / "other.md").write_text("# Two words\n## Two words\n```\n# One\n```\n")
    (tmp_path / "ignored.md").write_text("not committed\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n{text}\n")
    known = {page, tmp_path / "other.md"}
    assert any(problem(page, target, known) for target in links(page.read_text())) == wrong


def test_named_files_and_folders_exist() -> None:
    named = [(document.relative_to(ROOT), path) for document in documents() for path in paths(document.read_text())]
    assert len(named) > 30
    wrong = [f"{document}: {path}" for document, path in named if not (ROOT / path).exists()]
    assert not wrong, "\n".join(wrong)


def test_code_blocks_are_closed() -> None:
    for document in documents():
        fences = re.findall(r"^ *```.*$", document.read_text(), re.MULTILINE)
        assert len(fences) % 2 == 0, document.relative_to(ROOT)
        assert not [fence for fence in fences[1::2] if fence.strip() != "```"], document.relative_to(ROOT)


def test_every_chapter_is_in_the_summary() -> None:
    summary = BOOK / "SUMMARY.md"
    listed = [(BOOK / target).resolve() for target in links(summary.read_text())]
    assert len(listed) == len(set(listed))
    assert set(listed) == {path for path in BOOK.rglob("*.md") if path != summary}


def test_the_readme_is_short() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= README_LINES_MAX
    body = README.read_text()
    folders = re.search(r"^## Map\n\n```\n(.*?)```", body, re.DOTALL | re.MULTILINE)
    assert folders
    assert len(folders[1].splitlines()) <= 30
