"""Fitted statistics of dates and times apply only to the unit that they were fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve

MOMENTS = [0, 1_600_000_000_000_000, 1_600_000_001_000_000, 1_600_000_000_000_000, None]
TIMES = {
    "us": pa.timestamp("us"),
    "ms": pa.timestamp("ms"),
    "ns": pa.timestamp("ns"),
    "utc": pa.timestamp("us", "UTC"),
    "vienna": pa.timestamp("us", "Europe/Vienna"),
}


def moments(kind: pa.DataType) -> pa.Table:
    array = pa.array(MOMENTS, pa.int64()).view(pa.timestamp("us"))
    return pa.table({"t": array.cast(pa.timestamp(kind.unit)).view(pa.int64()).view(kind), "n": pa.array(range(5))})


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("times")
    for name, kind in TIMES.items():
        pq.write_table(moments(kind), root / f"{name}.parquet")
    return root


TEMPORAL = {
    "vocab": fb.cols("t").vocab(),
    "standardize": fb.cols("t").fill_null("mode").standardize(),
    "bucketize": fb.cols("t").fill_null(0).bucketize(quantiles=2),
    "derived": fb.cols("u").vocab(),
}


@pytest.mark.parametrize("name", TEMPORAL)
def test_statistics_of_times_apply_to_their_unit(serve: Serve, times: Path, name: str):
    sets = {kind: times / f"{kind}.parquet" for kind in TIMES}
    plan = fb.Plan(derive={"u": "t"}, outputs={"o": TEMPORAL[name]})
    one, other = serve(sets), serve(sets)
    with fb.connect(one.url) as fits, fb.connect(other.url) as computes:
        for fitted_to in ("us", "utc"):
            fitted = fits.fitted(fitted_to, plan)
            assert isinstance(fitted, fb.FittedPlan)
            suffix = "" if fitted_to == "us" else ", tz"
            assert fitted.plan.units == {TEMPORAL[name].names[0]: f"timestamp[us{suffix}]"}
            assert fb.FittedPlan.from_json(fitted.to_json()) == fitted
            want = np.concatenate([batch["o"] for batch in fits.stream(fitted_to, fitted)])
            # A server that has not fitted the plan and has only its JSON, and one that has.
            for client in (computes, fits):
                # By the plan alone: no id leads to what the fit has seen.
                got = np.concatenate([batch["o"] for batch in client.stream(fitted_to, fitted.plan)])
                assert np.array_equal(got, want)
            with computes.exchange(fitted.plan) as exchange:
                assert np.array_equal(exchange(moments(TIMES[fitted_to]))["o"], want)
            for kind in set(TIMES) - {fitted_to}:
                with pytest.raises(fb.ForebayError, match=r'schema drift: column ".".*timestamp\[us') as caught:
                    list(computes.stream(kind, fitted.plan))
                assert caught.value.code == "FAILED_PRECONDITION"
                with (
                    pytest.raises(fb.ForebayError, match="schema drift"),
                    computes.exchange(fitted.plan) as exchange,
                ):
                    exchange(moments(TIMES[kind]))
                if {fitted_to, kind} == {"utc", "vienna"}:
                    # A zone is part of a column's type, and this plan no longer reads the column.
                    continue
                with pytest.raises(fb.ForebayError, match="schema drift"):
                    computes.fitted(kind, fb.Plan.from_dict({**fitted.plan.to_dict(), **more()}))


def more() -> dict[str, Any]:
    """Outputs that have something left to learn."""
    part = {"columns": ["n"], "ops": [{"standardize": {}}]}
    return {"outputs": [{"name": "n", "parts": [part]}]}


def test_plans_without_fitted_times_name_no_units(serve: Serve, times: Path):
    with fb.connect(serve({"us": times / "us.parquet"}).url) as client:
        fitted = client.fitted("us", fb.Plan(outputs={"n": fb.cols("n").standardize(), "t": fb.cols("t").as_stored()}))
        assert isinstance(fitted, fb.FittedPlan)
        assert fitted.plan.units == {}
