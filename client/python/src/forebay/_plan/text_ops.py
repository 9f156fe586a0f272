"""The argument that names a tokenizer, or is one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast


def name_or_json(tokenizer: object) -> tuple[str, str]:
    """Return the name of a tokenizer of the server, or the content of a ``tokenizer.json``; the other one is empty.

    Text that begins with a brace is such a content; a path is read here, as is text that only a path can be; other text
    is a name. Objects of the packages tokenizers and transformers are written as JSON.
    """
    inner: object = getattr(tokenizer, "backend_tokenizer", tokenizer)
    write: object = getattr(inner, "to_str", None)
    if callable(write):
        return "", str(write())
    if isinstance(tokenizer, Mapping):
        raise TypeError("tokenize: pass the content of a tokenizer.json as text: json.dumps(tokenizer)")
    if isinstance(tokenizer, os.PathLike):
        return "", _read(Path(cast("os.PathLike[str]", tokenizer)))
    if not isinstance(tokenizer, str) or not tokenizer.strip():
        raise TypeError(
            "tokenize: pass the name of a tokenizer of the server, the path or the content of a tokenizer.json, or a "
            f"tokenizer, not {tokenizer!r}"
        )
    if tokenizer.lstrip().startswith("{"):
        return "", tokenizer
    return ("", _read(Path(tokenizer).expanduser())) if _is_path(tokenizer) else (tokenizer, "")


def _is_path(text: str) -> bool:
    """Whether text is a path rather than the name of a tokenizer of the server, which has no slashes."""
    return "/" in text or "\\" in text or (text.endswith(".json") and Path(text).is_file())


def _read(path: Path) -> str:
    if path.is_dir():
        raise IsADirectoryError(f"tokenize: {path} is a directory: pass the path of its tokenizer.json")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"tokenize: there is no file {path}; the name of a tokenizer of the server has no slashes"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"tokenize: {path} is not a tokenizer.json: it is not UTF-8") from None
