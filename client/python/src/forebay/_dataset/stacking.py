"""A guard against DataLoaders that would stack whole batches into another dimension.

A DataLoader with a batch_size collates that many items of its dataset, and the items here are whole batches. A
collate_fn of the caller's own may want them; torch's default and those of transformers stack them. Imports no torch.
"""

from __future__ import annotations

import sys
from typing import Any

FETCHER = "torch.utils.data._utils.fetch"
STACKING = ("torch.utils.data.", "transformers.", "accelerate.")


def refuse_stacking(kind: str) -> None:
    """Raise ValueError if a DataLoader that would stack whole batches is about to iterate, also through a wrapper."""
    if FETCHER not in sys.modules:
        return
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_globals.get("__name__") == FETCHER:
            _check(kind, frame.f_locals.get("self"), frame.f_locals)
            return
        frame = frame.f_back


def _check(kind: str, fetcher: Any, given: dict[str, Any]) -> None:
    """Raise for a fetcher of a DataLoader with a batch_size; `given` are its arguments while it is being made."""
    combines = getattr(fetcher, "auto_collation", given.get("auto_collation"))
    collate = getattr(fetcher, "collate_fn", given.get("collate_fn"))
    module = str(getattr(collate, "__module__", None) or type(collate).__module__)
    if combines and module.startswith(STACKING):
        raise ValueError(
            f"{kind} yields whole batches, which this DataLoader would stack into another dimension: use "
            f"DataLoader(data, batch_size=None), and set the rows per batch with {kind}(…, batch_size=…); instead of a "
            "transformers.Trainer use forebay.transformers.FlightTrainer"
        )
