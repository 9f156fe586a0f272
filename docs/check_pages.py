"""Check every local link of the built book: `python docs/check_pages.py docs/book`.

A link is right where its file exists, and its anchor too.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")


class Page(HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag leads to and how it is called."""
        for name, value in attrs:
            if value is None:
                continue
            if name in {"href", "src"}:
                self.links.append(value)
            if name in {"id", "name"}:
                self.anchors.add(value)


def broken(page: Page, pages: dict[Path, Page]) -> list[str]:
    """List the links of a page that lead nowhere."""
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
    """Print the broken links of all pages."""
    book = Path(sys.argv[1]).resolve()
    # The page for unknown addresses and the page to print are made for a site's root.
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
