"""Every bound of a parameter in plan.proto is kept by the server, and by the methods of the Python package."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import forebay as fb
from forebay._plan.generated.messages import MESSAGES
from forebay._plan.generated.ops import OPS
from forebay.errors import translate
from harness.serving import Server, info

# An op, a parameter, and a value beyond one of its bounds.
OUTSIDE = [
    (name, parameter, bound + step if isinstance(bound, int) else math.nextafter(bound, step * math.inf))
    for name, op in OPS.items()
    for parameter, limits in op.limits.items()
    for bound, step in zip(limits, (-1, 1), strict=True)
    if math.isfinite(bound)
]


def is_written(name: str, parameter: str, value: float) -> bool:
    """Whether the parameter's type has the value."""
    kind = MESSAGES[OPS[name].__name__][parameter][1].removeprefix("?")
    lowest, highest = {
        "uint32": (0, 2**32 - 1),
        "uint64": (0, 2**64 - 1),
        "int64": (-(2**63), 2**63 - 1),
    }.get(kind, (-math.inf, math.inf))
    return lowest <= value <= highest


def test_there_are_bounds_of_most_kinds():
    kinds = {MESSAGES[OPS[name].__name__][parameter][1] for name, parameter, _ in OUTSIDE}
    assert kinds >= {"uint32", "uint64", "int64", "?double"}
    assert len(OUTSIDE) > 30


@pytest.mark.parametrize(("name", "parameter", "value"), [case for case in OUTSIDE if is_written(*case)])
def test_the_server_rejects_a_value_beyond_a_bound(server: Server, name: str, parameter: str, value: float):
    others = {other: 1 for other in OPS[name].limits if other != parameter and other in OPS[name].required}
    op: dict[str, Any] = {name: {**others, parameter: value}}
    plan = {"outputs": [{"name": "o", "parts": [{"columns": ["id"], "ops": [op]}]}]}
    with fl.connect(server.url) as flight, pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        info(flight, {"dataset": "tiny", "plan": plan})
    error = translate(caught.value)
    assert error.code == "INVALID_ARGUMENT"
    assert f"plan.outputs[0].parts[0].ops[0].{name}.{parameter}: must be " in str(error)


@pytest.mark.parametrize(("name", "parameter", "value"), OUTSIDE)
def test_the_builder_rejects_a_value_beyond_a_bound(name: str, parameter: str, value: float):
    method = getattr(fb.cols("id"), name)
    arguments: dict[str, Any] = {other: 1 for other in OPS[name].limits if other in OPS[name].required}
    arguments[parameter] = value
    if name == "target_mean":
        arguments["label"] = "x"
    if name == "robust":
        arguments["center"] = 0
    positional = {"cross": ["x"], "rolling": ["mean"]}.get(name, [])
    with pytest.raises(ValueError, match=rf"{name}: {parameter} must be "):
        method(*positional, **arguments)
