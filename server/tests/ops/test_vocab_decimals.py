"""Vocabularies of decimals: values that float64 cannot distinguish are counted and found by all digits."""

from __future__ import annotations

import decimal
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._plan.plan_digest import plan_digest
from harness.ops.tables import features
from harness.serving import Serve

ROWS = 997
EXACT = decimal.Context(prec=100)

# Every column whose values float64 merges, and two that it does not.
WIDE = {
    "w16_0": pa.decimal128(16, 0),
    "w20_0": pa.decimal128(20, 0),
    "w38_0": pa.decimal128(38, 0),
    "w38_10": pa.decimal128(38, 10),
    "w38_18": pa.decimal128(38, 18),
    "w60_5": pa.decimal256(60, 5),
    "w76_38": pa.decimal256(76, 38),
}
NARROW = {"n9_2": pa.decimal128(9, 2), "n15_3": pa.decimal128(15, 3)}
KINDS = {**WIDE, **NARROW}
DATASETS = ("plain", "coded")


def pool(kind: Any) -> list[Decimal]:
    """Neighbours around zero, around both ends and around 2^53, one unit of the last digit apart."""
    most = 10**kind.precision - 1
    around = [0, most // 3, -most, most - 9, 2**53 if most > 2**53 else most // 7]
    unscaled = sorted({base + step for base in around for step in range(6) if abs(base + step) <= most})
    return [EXACT.scaleb(Decimal(value), -kind.scale) for value in unscaled]


def column(name: str) -> list[Decimal | None]:
    """The pool's values drawn unevenly, so that some counts are equal; every tenth a null."""
    source = random.Random(name)
    values = pool(KINDS[name])
    drawn = source.choices(values, [source.choice((1, 1, 3, 9)) for _ in values], k=ROWS)
    return [None if source.random() < 0.1 else value for value in drawn]


DATA = {name: column(name) for name in KINDS}


def baskets() -> list[list[Decimal | None] | None]:
    """Lists of none to three elements, or null."""
    source = random.Random("baskets")
    values = DATA["w20_0"]
    return [None if source.random() < 0.1 else source.choices(values, k=source.randrange(4)) for _ in range(ROWS)]


def table() -> pa.Table:
    fields = {name: pa.array(DATA[name], kind) for name, kind in KINDS.items()}
    return pa.table({**fields, "baskets": pa.array(baskets(), pa.list_(WIDE["w20_0"]))})


def write(folder: Path) -> dict[str, Path]:
    roots = {name: folder / name for name in DATASETS}
    for name, root in roots.items():
        root.mkdir(parents=True)
        pq.write_table(table(), root / "rows.parquet", row_group_size=211, use_dictionary=name == "coded")
    keys = list(dict.fromkeys(value for value in DATA["n15_3"] if value is not None))
    found = {name: pa.array(DATA[name][: len(keys)], kind) for name, kind in WIDE.items()}
    (folder / "table").mkdir()
    pq.write_table(pa.table({"n15_3": pa.array(keys, NARROW["n15_3"]), **found}), folder / "table" / "rows.parquet")
    return {**roots, "table": folder / "table"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Iterator[fb.Client]:
    with fb.connect(serve(write(tmp_path_factory.mktemp("decimals"))).url) as connected:
        yield connected


def vocabulary(values: list[Decimal | None], *, min_count: int = 0, max_size: int = 0) -> list[Decimal]:
    counts = Counter(value for value in values if value is not None)
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    return [value for value in ranked if counts[value] >= min_count][: max_size or None]


def indices(values: list[Decimal | None], listed: list[Decimal]) -> list[int]:
    places = {value: place for place, value in enumerate(listed, 1)}
    return [0 if value is None else places.get(value, 0) for value in values]


def fitted(client: fb.Client, chain: fb.Columns, dataset: str = "plain") -> fb.FittedPlan:
    return client.fit(dataset, fb.Plan(outputs={"o": fb.output(chain, dtype="int64")}), progress=False)


def last_op(plan: fb.FittedPlan) -> dict[str, Any]:
    outputs: Any = plan.plan.to_dict()["outputs"]
    return outputs[0]["parts"][-1]["ops"][-1]["vocab"]["values"]


def streamed(client: fb.Client, plan: fb.FittedPlan, dataset: str = "plain") -> list[int]:
    with client.stream(dataset, plan, batch_size=100) as stream:
        return [int(index) for batch in stream for index in batch["o"].ravel()]


def text(value: Decimal) -> str:
    """The form that plans keep: no exponent, no zeros at the end of a fraction, no sign of zero."""
    digits = f"{value:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if digits in ("", "-", "-0") else digits


@pytest.mark.parametrize("name", WIDE)
def test_data_has_decimals_that_float64_merges(name: str):
    values = set(DATA[name]) - {None}
    assert len({float(value) for value in values if value is not None}) < len(values)


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("limits", [{}, {"min_count": 20}, {"max_size": 7}, {"min_count": 9, "max_size": 11}])
@pytest.mark.parametrize("name", WIDE)
def test_counts_and_indices_match_a_counter(client: fb.Client, name: str, limits: dict[str, int], dataset: str):
    plan = fitted(client, fb.cols(name).vocab(**limits), dataset)
    listed = vocabulary(DATA[name], **limits)
    assert last_op(plan) == {"decimals": [text(value) for value in listed]}
    assert streamed(client, plan, dataset) == indices(DATA[name], listed)


@pytest.mark.parametrize("fill", [None, 2**53 + 1])
@pytest.mark.parametrize("dataset", DATASETS)
def test_elements_of_lists_are_counted_and_found(client: fb.Client, dataset: str, fill: int | None):
    filled = None if fill is None else Decimal(fill)
    lists = [[filled if value is None else value for value in basket or []] for basket in baskets()]
    listed = vocabulary([value for values in lists for value in values])
    column = fb.cols("baskets")
    chain = column.vocab().fill_null(0) if fill is None else column.fill_null(fill).vocab()
    plan = client.fit(dataset, fb.Plan(outputs={"o": fb.output(chain, dtype="int64")}), progress=False)
    outputs: Any = plan.plan.to_dict()["outputs"]
    (values,) = (op["vocab"]["values"] for op in outputs[0]["parts"][0]["ops"] if "vocab" in op)
    assert values == {"decimals": [text(value) for value in listed]}
    found: list[list[int]] = []
    for batch in client.stream(dataset, plan, batch_size=100):
        found += [part.tolist() for part in np.split(batch["o"].values, batch["o"].offsets[1:-1])]
    assert found == [indices(values, listed) for values in lists]


@pytest.mark.parametrize("name", WIDE)
def test_decimals_that_a_lookup_finds_are_counted_and_found(client: fb.Client, name: str):
    keys = list(dict.fromkeys(value for value in DATA["n15_3"] if value is not None))
    found = dict(zip(keys, DATA[name], strict=False))
    chain = fb.cols("n15_3").lookup("table", key="n15_3", columns=[name]).vocab()
    plan = fitted(client, chain)
    values = [None if key is None else found[key] for key in DATA["n15_3"]]
    listed = vocabulary(values)
    assert last_op(plan) == {"decimals": [text(value) for value in listed]}
    assert streamed(client, plan) == indices(values, listed)


@pytest.mark.parametrize("name", NARROW)
def test_decimals_of_up_to_15_digits_are_still_floats(client: fb.Client, name: str):
    plan = fitted(client, fb.cols(name).vocab())
    listed = vocabulary(DATA[name])
    assert last_op(plan) == {"floats": [float(value) for value in listed]}
    assert streamed(client, plan) == indices(DATA[name], listed)


def test_plans_of_narrow_decimals_keep_their_former_id(client: fb.Client):
    chains = {
        "alone": fb.cols(*NARROW).vocab(),
        "limited": fb.cols(*NARROW).fill_null("mode").vocab(min_count=9, max_size=11, oov_buckets=3),
        "scaled": fb.cols(*NARROW).fill_null(1.5).standardize(),
    }
    # The id without the types of columns, which fits did not write then.
    plans = {name: replace(fitted_as(client, chain).plan, types={}) for name, chain in chains.items()}
    assert {name: plan_digest(plan.to_dict()) for name, plan in plans.items()} == {
        "alone": "287a93298652741bfe280bfa63d280a3",
        "limited": "8a3a06f96319aee4f10d3232a29d2e06",
        "scaled": "575aeb0fa90b93cc7971082373dbe6e5",
    }


def fitted_as(client: fb.Client, chain: fb.Columns) -> fb.FittedPlan:
    return client.fit("plain", fb.Plan(outputs={"o": fb.output(chain, dtype="float32")}), progress=False)


@pytest.mark.parametrize("name", WIDE)
def test_unseen_decimals_hash_like_their_doubles(client: fb.Client, name: str):
    plan = fitted(client, fb.cols(name).vocab(max_size=5, oov_buckets=7))
    listed = vocabulary(DATA[name], max_size=5)
    outputs = {"hash": fb.output(fb.cols(name).hash_bucket(7).fill_null(-1), dtype="int64")}
    hashes = features(client, "plain", outputs)["hash"].ravel().tolist()
    seen = indices(DATA[name], listed)
    expected = [place if place or bucket < 0 else 6 + bucket for place, bucket in zip(seen, hashes, strict=True)]
    assert streamed(client, plan) == expected


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("fill", [0, 2**53 + 1, -7, 0.5, 1e-12])
@pytest.mark.parametrize("name", WIDE)
def test_filled_null_is_the_decimal_as_written(client: fb.Client, name: str, fill: float, dataset: str):
    filled = [Decimal(repr(fill)) if value is None else value for value in DATA[name]]
    plan = fitted(client, fb.cols(name).fill_null(fill).vocab(), dataset)
    listed = vocabulary(filled)
    assert last_op(plan) == {"decimals": [text(value) for value in listed]}
    assert streamed(client, plan, dataset) == indices(filled, listed)


@pytest.mark.parametrize("statistic", ["mean", "median", "mode"])
@pytest.mark.parametrize("name", WIDE)
def test_learned_fill_has_an_index(client: fb.Client, name: str, statistic: Any):
    plan = fitted(client, fb.cols(name).fill_null(statistic).vocab())
    (fill,) = first_fill(plan).values()
    filled = [Decimal(str(fill)) if value is None else value for value in DATA[name]]
    assert streamed(client, plan) == indices(filled, vocabulary(filled))


def test_fill_beyond_any_common_decimal_type_gives_floats(client: fb.Client):
    plan = fitted(client, fb.cols("w76_38").fill_null(1e-60).vocab())
    (doubles,) = last_op(plan).values()
    assert list(last_op(plan)) == ["floats"]
    assert len(doubles) < len(set(DATA["w76_38"]))
    found = zip(DATA["w76_38"], streamed(client, plan), strict=True)
    assert {index for value, index in found if value is None} == {doubles.index(1e-60) + 1}


def first_fill(plan: fb.FittedPlan) -> dict[str, Any]:
    outputs: Any = plan.plan.to_dict()["outputs"]
    return outputs[0]["parts"][0]["ops"][0]["fill_null"]


@pytest.mark.parametrize("name", WIDE)
def test_mode_keeps_all_digits(client: fb.Client, name: str):
    ((kind, fill),) = first_fill(fitted(client, fb.cols(name).fill_null("mode"))).items()
    mode = vocabulary(DATA[name])[0]
    assert Decimal(str(fill)) == mode
    assert kind in ({"value"} if Decimal(repr(float(mode))) == mode else {"integer", "unsigned", "decimal"})


@pytest.mark.parametrize("name", WIDE)
def test_decimal_fill_keeps_its_digits_and_any_spelling_is_one_plan(client: fb.Client, name: str):
    fill = EXACT.multiply(vocabulary(DATA[name])[3], Decimal("1.000"))
    plan = fitted(client, fb.cols(name).fill_null(fill).vocab())
    assert first_fill(plan) == {"decimal": text(fill)}
    filled = [fill if value is None else value for value in DATA[name]]
    assert streamed(client, plan) == indices(filled, vocabulary(filled))
    assert fb.FittedPlan.from_json(plan.to_json()).plan_id == plan.plan_id
    assert fitted(client, fb.cols(name).fill_null(Decimal(text(fill))).vocab()).plan_id == plan.plan_id


def test_rejects_a_fill_that_is_not_a_decimal(client: fb.Client):
    chain = {"columns": ["w38_10"], "ops": [{"fill_null": {"decimal": "1e5"}}]}
    plan = fb.Plan.from_json(json.dumps({"outputs": [{"name": "o", "parts": [chain]}]}))
    words = r'ops\[0\].fill_null.decimal: "1e5" is not a decimal of up to 76 digits'
    with pytest.raises(fb.InvalidRequest, match=words):
        client.stream("plain", plan)


def test_every_row_of_a_shuffled_stream_has_its_index(client: fb.Client):
    plan = fb.Plan(outputs={name: fb.cols(name).vocab(max_size=9, oov_buckets=3) for name in KINDS})
    plan = client.fit("plain", plan, progress=False)
    (ordered,) = client.stream("plain", plan, batch_size=ROWS)
    seen = 0
    for dataset in DATASETS:
        for batch in client.stream(dataset, plan, batch_size=64, shuffle=True, seed=5, with_row_ids=True):
            rows = batch["__row_id"].astype(np.int64)
            seen += len(rows)
            for name in KINDS:
                np.testing.assert_array_equal(batch[name], ordered[name][rows], strict=True)
    assert seen == 2 * ROWS


def test_exchange_gives_the_same_bytes(client: fb.Client):
    plan = fb.Plan(outputs={name: fb.cols(name).vocab(max_size=9, oov_buckets=3) for name in KINDS})
    plan = client.fit("plain", plan, progress=False)
    (streamed,) = client.stream("plain", plan, batch_size=ROWS)
    stored = table()
    coded = pa.table({name: stored[name].dictionary_encode() for name in KINDS})
    stored = stored.select(list(KINDS))
    with client.exchange(plan) as exchange:
        answers = [exchange(stored)]
    with client.exchange(plan) as exchange:
        answers.append(exchange(coded))
    for answer in answers:
        for name in KINDS:
            assert np.asarray(answer[name]).tobytes() == streamed[name].tobytes(), name


@pytest.mark.parametrize("name", KINDS)
def test_plan_round_trips_through_json(client: fb.Client, name: str, tmp_path: Path):
    plan = fitted(client, fb.cols(name).fill_null(1).vocab(oov_buckets=2))
    (tmp_path / "plan.json").write_text(plan.to_json())
    read = fb.FittedPlan.from_json(tmp_path / "plan.json")
    assert read.plan_id == plan.plan_id
    given = client.stream("plain", fb.Plan.from_json(json.dumps(plan.plan.to_dict())), batch_size=50)
    assert given.info.plan_id == plan.plan_id


def test_given_values_compare_by_all_digits_and_any_spelling_is_one_plan(client: fb.Client):
    def plan(*values: str) -> fb.Plan:
        chain = fb.cols("w38_10").vocab(values=[Decimal(value) for value in values])
        return fb.Plan(outputs={"o": fb.output(chain, dtype="int64")})

    first, second = vocabulary(DATA["w38_10"])[:2]
    with client.stream("plain", plan(f"{first}", f"{second}000", "1E-30"), batch_size=ROWS) as stream:
        one_id = stream.info.plan_id
        (batch,) = stream
    assert batch["o"].ravel().tolist() == indices(DATA["w38_10"], [first, second])
    with client.stream("plain", plan(text(first), text(second), f"{Decimal('1e-30'):f}0")) as stream:
        assert stream.info.plan_id == one_id


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("w38_10", ["1.50", "2", "1.5"], "value 1.5 is in the vocabulary twice"),
        ("w38_10", ["1e5"], 'value "1e5" is not a decimal'),
        ("w38_10", ["NaN"], 'value "NaN" is not a decimal'),
        ("id", ["1"], "a list of decimals, but its input is whole numbers"),
    ],
)
def test_rejects_invalid_lists_naming_the_value(client: fb.Client, name: str, values: list[str], words: str):
    body = {
        "outputs": [{"name": "o", "parts": [{"columns": [name], "ops": [{"vocab": {"values": {"decimals": values}}}]}]}]
    }
    derive = [{"name": "id", "expr": "CAST(1 AS BIGINT)"}]
    plan = fb.Plan.from_json(json.dumps({**body, "derive": derive}))
    with pytest.raises(fb.InvalidRequest, match=words):
        client.stream("plain", plan)


@pytest.mark.parametrize("name", ["w16_0", "w20_0", "w38_0"])
def test_list_of_floats_compares_as_doubles(client: fb.Client, name: str):
    doubles = Counter(float(value) for value in set(DATA[name]) - {None} if value is not None)
    merged = next(double for double, count in doubles.items() if count > 1)
    outputs = {"o": fb.output(fb.cols(name).vocab(values=[merged]), dtype="int64")}
    found = features(client, "plain", outputs)["o"].ravel().tolist()
    assert found == [int(value is not None and float(value) == merged) for value in DATA[name]]
