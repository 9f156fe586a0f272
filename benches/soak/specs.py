"""The streams that the soak reads: their plans and orders. A spec, an epoch and a rank name one stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import forebay as fb
from tables import FLOATS

Json = dict[str, Any]

ID: Json = {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]}
FEATURES: Json = {
    "outputs": [
        ID,
        {
            "name": "dense",
            "parts": [
                {"columns": ["x"], "ops": [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]},
                {"columns": FLOATS, "ops": [{"standardize": {}}, {"clip": {"min": -2, "max": 2}}]},
            ],
        },
        {"name": "cats", "dtype": "INT32", "parts": [{"columns": ["word", "n"], "ops": [{"vocab": {"min_count": 2}}]}]},
    ]
}
FILTERED: Json = {
    "filter": "n % 3 <> 1",
    "derive": [{"name": "late", "expr": "x > 100"}],
    "outputs": [
        ID,
        {"name": "word", "dtype": "AS_STORED", "parts": [{"columns": ["word"]}]},
        {"name": "m", "parts": [{"columns": FLOATS, "ops": [{"abs": {}}, {"log1p": {}}]}]},
        {"name": "late", "parts": [{"columns": ["late"], "ops": [{"fill_null": {"value": 0}}]}]},
    ],
}
TEXTS: Json = {"outputs": [ID, {"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]}]}
NUMBERS: Json = {"outputs": [ID, {"name": "m", "dtype": "FLOAT32", "parts": [{"columns": ["a", "b", "c", "d"]}]}]}
PLAIN: Json = {"outputs": [ID, {"name": "m", "parts": [{"columns": FLOATS}]}]}


@dataclass(frozen=True)
class StreamSpec:
    """A stream request and the epochs that are read with it."""

    name: str
    dataset: str
    plan: Json
    options: Json
    """Keyword arguments of `forebay.Client.stream`; the names are those of a StreamRequest, except `remainder`."""
    epochs: tuple[int, ...] = (0,)
    with_fit: bool = field(default=False)
    """Whether the plan must be fitted first."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return int(self.options.get("world_size", 1))

    def request(self, plan: fb.Plan | fb.FittedPlan, epoch: int, start_position: int = 0) -> Json:
        """Return the StreamRequest as JSON, for clients without the Python package."""
        named = {"plan_id": plan.plan_id} if isinstance(plan, fb.FittedPlan) else {"plan": plan.to_dict()}
        return {"dataset": self.dataset, **named, **self.options, "epoch": epoch, "start_position": start_position}


SHUFFLED = StreamSpec(
    "shuffled",
    "table",
    FEATURES,
    {
        "batch_size": 500,
        "world_size": 4,
        "shuffle": True,
        "seed": 7,
        "window_rows": 4096,
        "lanes": 8,
        "with_row_ids": True,
    },
    epochs=(0, 1, 2),
    with_fit=True,
)
ORDERED = StreamSpec("ordered", "table", FILTERED, {"batch_size": 1000, "world_size": 2, "with_row_ids": True})
LONG = StreamSpec("long", "texts", TEXTS, {"batch_size": 250, "with_row_ids": True})
WEB = StreamSpec("web", "web", NUMBERS, {"batch_size": 1000, "with_row_ids": True})
WEB_SHUFFLED = StreamSpec(
    "web shuffled",
    "web",
    NUMBERS,
    {"batch_size": 1000, "shuffle": True, "seed": 3, "window_rows": 1000, "lanes": 4, "with_row_ids": True},
    epochs=(0, 1),
)
DAMAGED = StreamSpec("damaged", "damaged", PLAIN, {"batch_size": 500, "with_row_ids": True})
SPECS = (SHUFFLED, ORDERED, LONG, WEB, WEB_SHUFFLED, DAMAGED)
