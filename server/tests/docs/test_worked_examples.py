"""The pages of worked examples: each has its program, and shows output that is in the linked run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.documents import BOOK, links
from harness.examples import EXAMPLES
from harness.readmes import blocks
from harness.repository import ROOT

PAGES = sorted((BOOK / "guides/examples").glob("*.md"))


def targets(page: Path) -> list[Path]:
    """The local files that a page links to."""
    return [(page.parent / link.partition("#")[0]).resolve() for link in links(page.read_text()) if "://" not in link]


def unknown_lines(output: str, runs: list[str]) -> list[str]:
    """The lines of the output that no run has; a line of dots is an omission."""
    known = {line.strip() for run in runs for line in run.splitlines()}
    return [line for line in output.splitlines() if line.strip() not in known | {"", "…", "..."}]


def test_the_overview_links_to_every_page() -> None:
    assert PAGES
    assert {page.resolve() for page in PAGES} <= set(targets(BOOK / "guides/examples.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_links_to_its_program_and_says_how_to_run_it(page: Path) -> None:
    programs = [target for target in targets(page) if target.parent == EXAMPLES]
    assert programs
    assert any(f"client/python/examples/{program.name}" in page.read_text() for program in programs)
    commands = [block.code for block in blocks(str(page.relative_to(ROOT))) if block.language == "sh"]
    assert any(program.name in command for program in programs for command in commands)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_output_on_a_page_is_in_a_linked_run(page: Path) -> None:
    runs = [path.read_text() for path in targets(page) if path.is_relative_to(ROOT / "benches/runs")]
    output = [block for block in blocks(str(page.relative_to(ROOT))) if not block.language]
    assert runs
    assert output
    for block in output:
        assert not unknown_lines(block.code, runs), block.place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_commands_exist(page: Path) -> None:
    for block in blocks(str(page.relative_to(ROOT))):
        for program, arguments in re.findall(r"examples/(\w+\.py)([^\n]*)", block.code):
            source = (EXAMPLES / program).read_text()
            for option in re.findall(r"--[\w-]+", arguments):
                assert f'"{option}"' in source, f"{block.place}: {program} has no {option}"


def test_changed_output_is_found() -> None:
    run = "a  1\nb  2\n"
    assert not unknown_lines("a  1\n…\nb  2\n", [run])
    assert unknown_lines("a  1\nb  3\n", [run]) == ["b  3"]
