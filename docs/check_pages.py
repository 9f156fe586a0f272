"""Check every local link of the built book: `python docs/check_pages.py docs/book`.

A link is valid if its file and its anchor exist.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a tag's links and anchors."""
        for name, value in attrs:
            if value is None:
                continue
            if name in {"href", "src"}:
                self.links.append(value)
            if name in {"id", "name"}:
                self.anchors.add(value)


def broken(page: Page, pages: dict[Path, Page]) -> list[str]:
    """Return the broken links of a page."""
    found: list[str] = []
    for link in page.links:
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.path.parent / unquote(path)).resolve() if path else page.path
        if not target.exists():
            found.append(f"{page.path.name}: {link}: no such file")
        elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
            found.append(f"{page.path.name}: {link}: no such heading")
    return found


def main() -> int:
    """Print the broken links of all pages; return 1 if there are any."""
    book = Path(sys.argv[1]).resolve()
    # The links of these pages are relative to a site's root.
    paths = [path for path in sorted(book.rglob("*.html")) if path.name not in {"404.html", "print.html"}]
    if not paths:
        print(f"{book}: no pages", file=sys.stderr)
        return 1
    pages = {path: Page(path) for path in paths}
    wrong = [line for page in pages.values() for line in broken(page, pages)]
    print("\n".join(wrong) or f"{len(pages)} pages, no broken links", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
