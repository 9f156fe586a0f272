"""Imports of the frameworks that the adapters are for, which the package does not require."""

from __future__ import annotations

import importlib
from typing import Any


def framework(module: str, *, extra: str, package: str | None = None) -> Any:
    """Return a framework's module, or a submodule of it.

    Raises ModuleNotFoundError with the command that installs the extra if the framework is missing. It is untyped, as
    types are checked where the frameworks are not installed. `package` is its name in the error; the default is the
    first part of `module`.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Else the framework is installed, and lacks something itself.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        name = package or module.partition(".")[0]
        raise ModuleNotFoundError(
            f"forebay.{extra} requires {name}, which is not installed: pip install 'forebay[{extra}]'", name=name
        ) from error
