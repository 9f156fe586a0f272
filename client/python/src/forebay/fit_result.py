"""Files of plans: a bare plan, or a fit's result around it, of a known version and not edited."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

from .op import Json
from .plan_digest import plan_digest

# The version of a fit's result that is read and written here.
FIT_VERSION = 1


def read_object(source: str | bytes | os.PathLike[str]) -> Json:
    """Return the JSON object of a file, or of text that begins with a brace."""
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
    """Return a fit's result out of the action's last answer, ``{"result": …}``; anything else as it is."""
    return cast(Json, found["result"]) if isinstance(found.get("result"), dict) else found


def checked_plan(result: Json) -> Json:
    """Return the plan of a fit's result, if its version is known and it is the plan of its id."""
    version = result.get("version", FIT_VERSION)
    if version != FIT_VERSION:
        raise ValueError(
            f"the fit's result is of version {version!r}, and this package reads version {FIT_VERSION}: "
            "use the release of forebay that wrote it, or fit the plan again"
        )
    plan = cast(Json, result["plan"])
    wanted = result.get("plan_id", result.get("planId"))
    if wanted and (found := plan_digest(plan)) != wanted:
        raise ValueError(
            f"the fit's result has the plan_id {wanted}, but its plan is that of {found}: somebody has edited it; "
            'fit again, or keep what stands under "plan" as a file of its own'
        )
    return plan
