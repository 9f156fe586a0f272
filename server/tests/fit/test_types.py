"""A fitted plan, and any plan derived from it, refuses columns whose type can change a value, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve

HOURS = [1_775_340_000_000_000 + hour * 3_600_000_000 for hour in range(48)]


def rows(**kinds: pa.DataType) -> pa.Table:
    """Return rows with the same instants, numbers and words in columns of these types."""
    table = {
        "ts": pa.array(HOURS, pa.int64()).view(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        "x": pa.array(np.arange(48) / 7),
        "n": pa.array(range(48), pa.int64()),
        "word": pa.array(["a", "b", "c"] * 16),
        "unread": pa.array(range(48), pa.int64()),
    }
    cast = {"ts": pa.timestamp("us", "Europe/Berlin")} | kinds
    return pa.table({name: values.cast(cast.get(name, values.type), safe=False) for name, values in table.items()})


PLAN = fb.Plan(
    filter="n >= 0",
    derive={"hour": "hour(ts)"},
    outputs={
        "x": fb.cols("x", "n").standardize(),
        "hour": fb.cols("hour"),
        "word": fb.cols("word").vocab(),
    },
)

SAME: dict[str, dict[str, pa.DataType]] = {
    "same": {},
    "narrow integers": {"n": pa.int8()},
    "unsigned": {"n": pa.uint32()},
    "long text": {"word": pa.large_string()},
    "dictionary": {"word": pa.dictionary(pa.int32(), pa.string())},
    "unread": {"unread": pa.float32()},
}
DRIFTS: dict[str, tuple[dict[str, pa.DataType], str, str, str]] = {
    "UTC": ({"ts": pa.timestamp("us", "UTC")}, "ts", "timestamp[us, tz=Europe/Berlin]", "timestamp[us, tz=UTC]"),
    "no zone": ({"ts": pa.timestamp("us")}, "ts", "timestamp[us, tz=Europe/Berlin]", "timestamp[us]"),
    "float": ({"x": pa.float32()}, "x", "double", "float"),
    "integer": ({"x": pa.int64()}, "x", "double", "int64"),
    "filter": ({"n": pa.float64()}, "n", "int64", "double"),
    "uint64": ({"n": pa.uint64()}, "n", "int64", "uint64"),
    "bytes": ({"word": pa.binary()}, "word", "string", "binary"),
    "whole days": ({"ts": pa.date64()}, "ts", "timestamp[us, tz=Europe/Berlin]", "date64[ms]"),
}


def edited(fitted: fb.FittedPlan) -> fb.Plan:
    """Return the plan with its outputs in another order."""
    plan = fitted.plan.to_dict()
    return fb.Plan.from_dict({**plan, "outputs": plan["outputs"][::-1]})


DERIVED: dict[str, Callable[[fb.FittedPlan], fb.FittedPlan | fb.Plan]] = {
    "fitted": lambda fitted: fitted,
    "with_filter": lambda fitted: fitted.with_filter("n >= -1"),
    "and_filter": lambda fitted: fitted.and_filter("true"),
    "without filter": lambda fitted: fitted.with_filter(None),
    "from a file": lambda fitted: fb.FittedPlan.from_json(fitted.to_json()),
    "plan": lambda fitted: fitted.plan,
    "edited": edited,
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("types")
    kinds = {f"same {name}": of for name, of in SAME.items()} | {name: of for name, (of, *_) in DRIFTS.items()}
    found: dict[str, Path] = {}
    for number, (name, of) in enumerate(kinds.items()):
        found[name.replace(" ", "_")] = root / f"{number}.parquet"
        pq.write_table(rows(**of), root / f"{number}.parquet")
    return found


@pytest.fixture(scope="module")
def clients(serve: Serve, sets: dict[str, Path]):
    """Two servers: one fits, the other has only the plans that it is sent."""
    with fb.connect(serve(sets).url) as fits, fb.connect(serve(sets).url) as computes:
        yield fits, computes


@pytest.fixture(scope="module")
def fitted(clients: tuple[fb.Client, fb.Client]) -> fb.FittedPlan:
    fitted = clients[0].fit("same_same", PLAN, progress=False)
    assert isinstance(fitted, fb.FittedPlan)
    return fitted


def test_a_fit_writes_the_types_that_its_columns_load_as(clients: tuple[fb.Client, fb.Client], fitted: fb.FittedPlan):
    assert fitted.plan.types == {
        "n": "int64",
        "ts": "timestamp[us, tz=Europe/Berlin]",
        "word": "string",
        "x": "double",
    }
    # Encodings do not change a plan's id, also on another server.
    for name in SAME:
        again = clients[1].fit(f"same_{name}".replace(" ", "_"), PLAN, progress=False)
        assert again.plan_id == fitted.plan_id
    # A plan that learns nothing is that which was sent.
    plain = clients[0].fit("same_same", fb.Plan(outputs={"x": fb.cols("x")}), progress=False)
    assert plain.plan.types == {}


@pytest.mark.parametrize("derived", DERIVED)
def test_encodings_of_the_same_values_are_accepted(
    clients: tuple[fb.Client, fb.Client], fitted: fb.FittedPlan, derived: str
):
    plan = DERIVED[derived](fitted)
    want = next(clients[0].stream("same_same", plan))
    for client in clients:
        for name, kinds in SAME.items():
            got = next(client.stream(f"same_{name}".replace(" ", "_"), getattr(plan, "plan", plan)))
            with client.exchange(getattr(plan, "plan", plan)) as exchange:
                sent = exchange(rows(**kinds))
            for output in want:
                assert np.array_equal(got[output], want[output])
                assert np.array_equal(sent[output], want[output])


@pytest.mark.parametrize("derived", DERIVED)
@pytest.mark.parametrize("name", DRIFTS)
def test_types_that_change_values_are_drift(
    clients: tuple[fb.Client, fb.Client], fitted: fb.FittedPlan, derived: str, name: str
):
    kinds, column, expected, found = DRIFTS[name]
    plan = DERIVED[derived](fitted)
    if derived == "without filter" and name == "filter":
        assert "n" in plan.plan.types  # which `x` still reads
    inline = getattr(plan, "plan", plan)
    dataset = name.replace(" ", "_")
    calls: dict[str, Callable[[fb.Client], object]] = {
        "stream": lambda client: next(client.stream(dataset, inline)),
        "explain": lambda client: client.explain(dataset, inline),
        "take": lambda client: client.take(dataset, inline, row_ids=[1]),
        "fit": lambda client: client.fit(dataset, inline, progress=False),
    }
    for call in calls.values():
        for client in clients:
            with pytest.raises(fb.SchemaDrift) as caught:
                call(client)
            text = str(caught.value)
            # A unit is reported before a type.
            if name != "whole days":
                assert f'column "{column}" is {found}, but the plan was fitted on {expected}: convert' in text
    for client in clients:
        with pytest.raises(fb.SchemaDrift, match=f'"{column}"'), client.exchange(inline) as exchange:
            exchange(rows(**kinds))
    if isinstance(plan, fb.FittedPlan):
        with pytest.raises(fb.SchemaDrift, match=f'"{column}"'), clients[0].exchange(plan) as exchange:
            exchange(rows(**kinds))


def test_a_column_that_a_derived_plan_no_longer_reads_may_have_any_type(
    clients: tuple[fb.Client, fb.Client], fitted: fb.FittedPlan
):
    plan = fitted.plan.to_dict()
    words = fb.Plan.from_dict({**plan, "filter": "", "outputs": plan["outputs"][2:]})
    want = next(clients[1].stream("same_same", words))["word"]
    for name in ("UTC", "float", "filter"):
        assert np.array_equal(next(clients[1].stream(name, words))["word"], want)


def test_a_changed_snapshot_is_checked(serve: Serve, tmp_path: Path):
    path = tmp_path / "t/a.parquet"
    path.parent.mkdir()
    pq.write_table(rows(), path)
    with fb.connect(serve({"t": path.parent}).url) as client:
        fitted = client.fit("t", PLAN, progress=False)
        next(client.stream("t", fitted))
        pq.write_table(rows(ts=pa.timestamp("us", "UTC")).slice(1), path)
        with pytest.raises(fb.SchemaDrift, match='"ts"'):
            next(client.stream("t", fitted))


def test_unfitted_plans_and_those_of_older_servers_work_on_everything(clients: tuple[fb.Client, fb.Client]):
    plain = fb.Plan(derive={"hour": "hour(ts)"}, outputs={"hour": fb.cols("hour"), "x": fb.cols("x")})
    fitted = clients[0].fit("same_same", PLAN.with_filter("n > 0"), progress=False)
    older = fb.Plan.from_dict({name: part for name, part in fitted.plan.to_dict().items() if name != "types"})
    assert not older.needs_fit
    for name in ("UTC", "float", "filter"):
        for plan in (plain, older):
            assert next(clients[1].stream(name, plan))["hour"].shape == (48 - (plan is older),)
