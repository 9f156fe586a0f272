"""Files of plans: a bare plan, or a fit's result of a known version, unedited."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

from .message import Json
from .plan_digest import plan_digest

# Version of a fit's result that this package reads and writes.
FIT_VERSION = 1


def read_object(source: str | bytes | os.PathLike[str]) -> Json:
    """Return the JSON object of a file, or of text that starts with a brace."""
    if isinstance(source, bytes):
        text = source.decode()
    elif isinstance(source, str) and source.lstrip().startswith("{"):
        text = source
    else:
        text = Path(source).read_text(encoding="utf-8")
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the plan is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ValueError("the plan must be a JSON object")
    return cast(Json, read)


def unwrapped(found: Json) -> Json:
    """Return the result in the action's last message, ``{"result": …}``; anything else unchanged."""
    return cast(Json, found["result"]) if isinstance(found.get("result"), dict) else found


def checked_plan(result: Json) -> Json:
    """Return the plan of a fit's result; raise ValueError if its version is unknown or its id does not match."""
    version = result.get("version", FIT_VERSION)
    if version != FIT_VERSION:
        raise ValueError(
            f"the fit's result has version {version!r}, and this package reads version {FIT_VERSION}: "
            "use the release of forebay that wrote it, or fit the plan again"
        )
    plan = cast(Json, result["plan"])
    expected = result.get("plan_id", result.get("planId"))
    if expected and (found := plan_digest(plan)) != expected:
        raise ValueError(
            f"the fit's result has plan_id {expected}, but the id of its plan is {found}: it was edited; "
            'fit again, or save the value of "plan" as a file'
        )
    return plan
