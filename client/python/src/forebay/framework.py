"""Imports of the frameworks that the adapters are for, which the package does not require."""

from __future__ import annotations

import importlib
from typing import Any


def framework(module: str, *, extra: str) -> Any:
    """Return a framework's module, or a submodule of it.

    Raises ModuleNotFoundError with the command that installs the extra if the framework is missing. It is untyped, as
    types are checked where the frameworks are not installed.
    """
    name = module.partition(".")[0]
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ModuleNotFoundError(
            f"forebay.{extra} requires {name}, which is not installed: pip install 'forebay[{extra}]'", name=name
        ) from error
    return importlib.import_module(module)
