"""An mdBook preprocessor: links out of the book to Markdown files keep their names.

mdBook renames the target of every relative link from .md to .html, also where the file is no chapter. A dot that is
percent-encoded names the same file, and mdBook leaves it alone. docs/book has the depth of docs/src, so that relative
links into the repository lead to the same files from both.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

OUTWARD = re.compile(r"(\]\((?:\.\./){2,}[^)\s]*)\.md\b")


def rewrite(chapters: list[Any]) -> None:
    """Encode the dots in the chapters and in those below them."""
    for item in chapters:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            chapter["content"] = OUTWARD.sub(r"\1%2Emd", chapter["content"])
            rewrite(chapter["sub_items"])


def main() -> None:
    """Answer mdBook: which renderers are supported, or the book."""
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    rewrite(book["items"])
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
