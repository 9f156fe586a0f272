"""An mdBook preprocessor that keeps the .md suffix of links to files outside the book.

mdBook rewrites every relative link from .md to .html, even if the file is not a chapter. It does not rewrite a
percent-encoded dot, which names the same file. docs/book has the same depth as docs/src, so that relative links into
the repository resolve from both.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any


def outward(path: str) -> re.Pattern[str]:
    """Return the links of a chapter, at this path in the book, that leave the book."""
    return re.compile(rf"(\]\((?:\.\./){{{path.count('/') + 1},}}[^)\s]*)\.md\b")


def rewrite(chapters: list[Any]) -> None:
    """Encode the dots in the chapters and their subchapters."""
    for item in chapters:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            chapter["content"] = outward(chapter["path"] or "").sub(r"\1%2Emd", chapter["content"])
            rewrite(chapter["sub_items"])


def main() -> None:
    """Answer mdBook's query for supported renderers, or write the processed book to stdout."""
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    rewrite(book["items"])
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
