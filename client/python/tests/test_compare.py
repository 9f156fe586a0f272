"""A plan's batches compared with Parquet files: equality, distances, pairs of rows and bad files."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._client.comparison import ColumnComparison, Comparison, ValueDifference, comparing, pairing
from forebay._client.comparison.ulps import UNMEASURABLE, distances
from harness.serving import Serve, Server

ROWS = 300
VECTOR = pa.struct(
    [
        pa.field("type", pa.int8()),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())),
        pa.field("values", pa.list_(pa.float64())),
    ]
)


def table() -> pa.Table:
    random = np.random.default_rng(3)
    x = random.normal(0, 10, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS) * 7 - 50),
            "user": pa.array([None if i % 50 == 49 else f"u{i % 40}" for i in range(ROWS)]),
            "turn": pa.array([i // 40 for i in range(ROWS)], pa.int32()),
            "x": pa.array(x),
            "y": pa.array(random.normal(0, 1, ROWS)),
            "word": pa.array([None if i % 9 == 8 else f"w{i % 7}" for i in range(ROWS)]),
            "sparse": pa.array([float(i % 3 == 0) for i in range(ROWS)]),
            "some": pa.array([[float(j) for j in range(i % 4)] for i in range(ROWS)]),
            "day": pa.array([date(2024, 1, 1 + i % 28) for i in range(ROWS)]),
            "at": pa.array([datetime(2024, 1, 1, i % 24, 0, 0, 1) for i in range(ROWS)], pa.timestamp("us")),
            "price": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
            "flag": pa.array([i % 5 == 0 for i in range(ROWS)]),
            "nan": pa.array([math.nan if i % 10 == 0 else 1.5 for i in range(ROWS)]),
        }
    )


TABLE = table()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fb.Client]:
    folder = tmp_path_factory.mktemp("compare")
    pq.write_table(TABLE.slice(0, 170), folder / "a.parquet", row_group_size=60)
    pq.write_table(TABLE.slice(170), folder / "b.parquet", row_group_size=60)
    running = Server({"t": folder})
    with fb.connect(running.url) as connected:
        yield connected
    running.stop()


def shards(folder: Path, columns: dict[str, Any], *, order: Any = None, files: int = 2) -> Path:
    """The columns in several files, in the table's order or another."""
    made = pa.table(columns)
    made = made if order is None else made.take(pa.array(order))
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(made.num_rows), files)):
        pq.write_table(made.take(pa.array(part, pa.int64())), folder / f"part-{number:05d}.parquet", row_group_size=41)
    (folder / "_SUCCESS").write_text("")
    return folder


def vectors(rows: Any, *, sparse: bool | None = None) -> pa.Array:
    """Spark's vectors of a matrix: dense, sparse, or both in turn."""
    made: list[Any] = []
    for at, row in enumerate(rows):
        if row is None:
            made.append(None)
        elif sparse or (sparse is None and at % 2):
            indices = [i for i, value in enumerate(row) if value != 0 or math.isnan(value)]
            values = [row[i] for i in indices]
            made.append({"type": 0, "size": len(row), "indices": indices, "values": values})
        else:
            made.append({"type": 1, "size": None, "indices": None, "values": list(row)})
    return pa.array(made, VECTOR)


def doubles(*columns: str) -> fb.Output:
    return fb.output(fb.cols(*columns), dtype="FLOAT64")


def stacked(*columns: str) -> np.ndarray:
    return np.stack([TABLE[name].to_numpy() for name in columns], axis=1)


def only(found: Comparison) -> ColumnComparison:
    (column,) = found.columns
    return column


# === Values ===


@pytest.mark.parametrize("sparse", [True, False, None])
def test_vectors_equal_matrices(client: fb.Client, tmp_path: Path, sparse: bool | None):
    plan = fb.Plan(outputs={"v": doubles("x", "sparse", "y")})
    rows = stacked("x", "sparse", "y")
    found = fb.compare(plan, shards(tmp_path / "s", {"v": vectors(rows, sparse=sparse)}), url=client)
    assert found, found
    assert found.rows == ROWS
    assert (only(found).plan_type, only(found).shards_type) == ("double[3]", "vector")


def test_a_vector_of_one_element_equals_a_number(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"v": doubles("x")})
    assert fb.compare(plan, shards(tmp_path / "s", {"v": vectors(stacked("x"))}), url=client)


def test_the_first_rows_that_differ_have_both_values(client: fb.Client, tmp_path: Path):
    rows = stacked("x", "sparse", "y")
    rows[[7, 70, 200, 299], [2, 0, 1, 1]] += [0.5, 1.0, 2.0, 3.0]
    plan = fb.Plan(outputs={"v": doubles("x", "sparse", "y")})
    found = fb.compare(plan, shards(tmp_path / "s", {"v": vectors(rows)}), url=client, examples=2, batch_size=64)
    column = only(found)
    assert (column.status, column.rows_differ, column.rows_equal) == ("differs", 4, ROWS - 4)
    assert [(one.row, one.element) for one in column.differences] == [(7, 2), (70, 0)]
    first = column.differences[0]
    assert (first.plan, first.shards) == (TABLE["y"][7].as_py(), rows[7, 2])
    assert f"row 7, element 2: plan {first.plan!r}, shards {first.shards!r}" in repr(found)
    assert column.difference_max == 3.0
    assert not found


def test_ulps_and_absolute_differences_are_accepted_on_request(client: fb.Client, tmp_path: Path):
    x = TABLE["x"].to_numpy().copy()
    x[3] = np.nextafter(x[3], math.inf)
    x[5] = np.nextafter(np.nextafter(x[5], -math.inf), -math.inf)
    folder = shards(tmp_path / "s", {"x": x})
    plan = fb.Plan(outputs={"x": doubles("x")})
    exact, near, nearer = (fb.compare(plan, folder, url=client, ulps=ulps) for ulps in (0, 2, 1))
    assert [only(one).rows_differ for one in (exact, near, nearer)] == [2, 0, 1]
    assert [only(one).rows_within for one in (exact, near, nearer)] == [0, 2, 1]
    assert {only(one).ulps_max for one in (exact, near, nearer)} == {2}
    assert (exact.equal, near.equal, only(near).status) == (False, True, "within")
    assert [one.ulps for one in only(exact).differences] == [1, 2]
    assert fb.compare(plan, folder, url=client, atol=1e-12).equal
    with pytest.raises(ValueError, match="atol must be 0 or more"):
        fb.compare(plan, folder, url=client, atol=-1)
    with pytest.raises(ValueError, match="ulps must be from 0"):
        fb.compare(plan, folder, url=client, ulps=-1)


@pytest.mark.parametrize(("dtype", "ulps_max"), [("FLOAT32", 0), ("FLOAT16", 0), ("BFLOAT16", 0), ("FLOAT64", 0)])
def test_floats_are_compared_in_the_narrower_format(client: fb.Client, tmp_path: Path, dtype: str, ulps_max: int):
    plan = fb.Plan(outputs={"v": fb.output(fb.cols("x", "y"), dtype=dtype)})
    found = fb.compare(plan, shards(tmp_path / "s", {"v": vectors(stacked("x", "y"))}), url=client)
    assert found.equal, found
    assert only(found).ulps_max == ulps_max


def test_nulls_nan_zeros_and_infinities(client: fb.Client, tmp_path: Path):
    nan = TABLE["nan"].to_pylist()
    assert fb.compare(fb.Plan(outputs={"nan": doubles("nan")}), shards(tmp_path / "a", {"nan": nan}), url=client)
    changed: list[float | None] = list(nan)
    changed[0], changed[1], changed[2] = None, math.inf, math.nan
    found = fb.compare(fb.Plan(outputs={"nan": doubles("nan")}), shards(tmp_path / "b", {"nan": changed}), url=client)
    assert [one.ulps for one in only(found).differences] == [None] * 3
    assert [one.shards for one in only(found).differences][:2] == [None, math.inf]
    assert only(found).ulps_max == 0
    zeros = [-0.0 if value == 0 else value for value in TABLE["sparse"].to_pylist()]
    plan = fb.Plan(outputs={"sparse": doubles("sparse")})
    assert fb.compare(plan, shards(tmp_path / "c", {"sparse": zeros}), url=client)


def test_integers_equal_floats_by_value(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"id": fb.output(fb.cols("id"), dtype="INT64"), "flag": fb.cols("flag")})
    ids = TABLE["id"].to_numpy().astype(np.float64)
    assert fb.compare(plan, shards(tmp_path / "a", {"id": ids, "flag": TABLE["flag"]}), url=client)
    ids[4] += 0.25
    found = fb.compare(plan, shards(tmp_path / "b", {"id": ids, "flag": TABLE["flag"]}), url=client, ulps=10**9)
    assert found.columns[0].rows_differ == 1
    assert found.columns[0].differences[0].ulps is None


def test_lists_texts_dates_and_decimals(client: fb.Client, tmp_path: Path):
    names = ["word", "day", "at", "price", "some", "user"]
    plan = fb.Plan(outputs={name: fb.cols(name).as_stored() for name in names})
    columns: dict[str, Any] = {name: TABLE[name] for name in names}
    assert fb.compare(plan, shards(tmp_path / "a", columns), url=client)
    columns |= {
        "word": TABLE["word"].combine_chunks().dictionary_encode(),
        "day": TABLE["day"].cast(pa.timestamp("us")),
        # As Spark writes them: in UTC, and as INT96 in nanoseconds.
        "at": TABLE["at"].cast(pa.timestamp("ns", tz="UTC")),
        "price": TABLE["price"].cast(pa.float64()),
        "some": TABLE["some"].cast(pa.list_(pa.float32())),
        "user": TABLE["user"].cast(pa.large_string()),
    }
    assert fb.compare(plan, shards(tmp_path / "b", columns), url=client)
    columns["some"] = pa.array([[*row, 1.0] if at == 9 else row for at, row in enumerate(TABLE["some"].to_pylist())])
    columns["word"] = pa.array(["w0" if word is None else word for word in TABLE["word"].to_pylist()])
    found = fb.compare(plan, shards(tmp_path / "c", columns), url=client, examples=1)
    by_name = {column.name: column for column in found.columns}
    assert by_name["some"].differences == (ValueDifference(9, (), None, [0.0], [0.0, 1.0], None),)
    assert by_name["word"].differences == (ValueDifference(8, (), None, None, "w0", None),)
    assert by_name["word"].rows_differ == TABLE["word"].null_count


def test_text_and_numbers_differ(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"turn": fb.cols("turn").as_stored()})
    texts = [str(value) for value in TABLE["turn"].to_pylist()]
    found = fb.compare(plan, shards(tmp_path / "s", {"turn": texts}), url=client)
    assert only(found).rows_differ == ROWS
    assert (only(found).plan_type, only(found).shards_type) == ("int32", "string")


def ordinal(value: float, form: str) -> int:
    """The place of a float among all of its format, 0 for both zeros; an oracle in plain Python."""
    code, width = {"float16": ("e", 2), "float32": ("f", 4), "float64": ("d", 8)}[form]
    bits = int.from_bytes(struct.pack(f"<{code}", value), "little")
    sign = 1 << (8 * width - 1)
    return bits if bits < sign else sign - bits


@pytest.mark.parametrize("form", ["float16", "float32", "float64"])
def test_distances_are_those_of_an_oracle(form: str):
    random = np.random.default_rng(8)
    bits = random.integers(0, 256, (2, 2000, np.dtype(form).itemsize), np.uint8)
    left, right = (one.copy().view(form)[:, 0] for one in bits)
    with np.errstate(invalid="ignore"):
        right[:500] = np.nextafter(left[:500], np.array(math.inf, form))
    left[500:505], right[500:505] = [0.0, -0.0, math.inf, math.nan, math.inf], [-0.0, 0.0, math.inf, math.nan, 1.0]
    found = distances(left, right, (form, form))
    for one, other, equal, ulps in zip(left.tolist(), right.tolist(), *found[:2], strict=True):
        same = one == other or (one != one and other != other)
        assert bool(equal) == same
        if same:
            assert ulps == 0
        elif math.isfinite(one) and math.isfinite(other):
            assert int(ulps) == abs(ordinal(one, form) - ordinal(other, form))
        else:
            assert ulps == UNMEASURABLE


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (np.array([2**63 - 1, -1]), np.array([2**63 - 1, 2**64 - 1], np.uint64), [True, False]),
        (np.array([2**53 + 1, 2**53]), np.array([2.0**53, 2.0**53]), [False, True]),
        (np.array([2**64 - 1], np.uint64), np.array([2.0**64]), [False]),
        (np.array([-(2**63), 0]), np.array([-(2.0**63), math.nan]), [True, False]),
        (np.array([True, False]), np.array([1.0, 0.5]), [True, False]),
    ],
)
def test_large_integers_are_compared_exactly(left: np.ndarray, right: np.ndarray, equal: list[bool]):
    for pair in ((left, right), (right, left)):
        found = distances(*pair, (pair[0].dtype.name, pair[1].dtype.name))
        assert found.equal.tolist() == equal


# === Rows and columns ===


@pytest.mark.parametrize("by", ["id", ["user", "turn"], ["word", "id"]])
@pytest.mark.parametrize("partition_bytes", [32 << 20, 400])
def test_rows_are_paired_by_key_in_any_order(
    client: fb.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str | list[str], partition_bytes: int
):
    monkeypatch.setattr(pairing, "PARTITION_BYTES", partition_bytes)
    monkeypatch.setattr(pairing, "PAIR_ROWS", 7)
    order = np.random.default_rng(1).permutation(ROWS)
    if by == ["user", "turn"]:
        # The rows of null users have keys that repeat: those stay in order.
        order = np.array(sorted(order, key=lambda at: at if TABLE["user"][int(at)].as_py() is None else -1))
    keys = {name: TABLE[name] for name in ([by] if isinstance(by, str) else by)}
    plan = fb.Plan(outputs={"v": doubles("x", "y")})
    values = stacked("x", "y")
    folder = shards(tmp_path / "a", {**keys, "v": vectors(values)}, order=order)
    found = fb.compare(plan, folder, url=client, by=by, batch_size=50)
    assert found, found
    assert not fb.compare(plan, folder, url=client, columns=["v"])
    values[200, 1] = 1e9
    folder = shards(tmp_path / "b", {**keys, "v": vectors(values)}, order=order)
    found = fb.compare(plan, folder, url=client, by=by, batch_size=50)
    (difference,) = only(found).differences
    assert (difference.row, difference.element, difference.shards) == (200, 1, 1e9)
    assert difference.key == tuple(column[200].as_py() for column in keys.values())


def test_keys_may_have_other_types_of_a_kind(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"y": doubles("y")})
    ids = TABLE["id"].to_numpy() + 50
    plan_ids = fb.Plan(derive={"key": "id + 50"}, outputs={"y": doubles("y"), "key": fb.cols("key").as_stored()})
    assert fb.compare(
        plan_ids, shards(tmp_path / "a", {"key": ids.astype(np.uint64), "y": TABLE["y"]}), url=client, by="key"
    )
    with pytest.raises(ValueError, match="by: key 'id' is int64 in the plan and string in the shards"):
        fb.compare(plan, shards(tmp_path / "b", {"id": [str(i) for i in ids], "y": TABLE["y"]}), url=client, by="id")
    with pytest.raises(ValueError, match="keys are integers, texts"):
        fb.compare(plan, shards(tmp_path / "c", {"x": TABLE["x"], "y": TABLE["y"]}), url=client, by="x")
    with pytest.raises(ValueError, match=r"the shards have no column 'idd': did you mean id\?"):
        fb.compare(plan, shards(tmp_path / "d", {"id": ids, "y": TABLE["y"]}), url=client, by="idd")


def test_rows_of_one_side_are_counted(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"y": doubles("y")})
    kept = np.delete(np.arange(ROWS), [3, 150])
    columns = {"id": np.append(TABLE["id"].to_numpy()[kept], -999), "y": np.append(TABLE["y"].to_numpy()[kept], 0.0)}
    folder = shards(tmp_path / "s", columns)
    found = fb.compare(plan, folder, url=client, by="id")
    assert (found.rows, found.rows_only_in_plan, found.rows_only_in_shards) == (ROWS - 2, 2, 1)
    assert found.keys_only_in_plan == ((TABLE["id"][3].as_py(),), (TABLE["id"][150].as_py(),))
    assert found.keys_only_in_shards == ((-999,),)
    assert only(found).rows_differ == 0
    assert not found
    assert "rows only in the shards: 1, keys -999" in repr(found)
    in_order = fb.compare(plan, folder, url=client, columns=["y"])
    assert (in_order.rows, in_order.rows_only_in_plan, in_order.rows_only_in_shards) == (ROWS - 1, 1, 0)


def test_no_rows_at_all(client: fb.Client, tmp_path: Path):
    empty = {"id": pa.array([], pa.int64()), "y": pa.array([], pa.float64())}
    folder = shards(tmp_path / "s", empty, files=1)
    for by in (None, "id"):
        found = fb.compare(fb.Plan(outputs={"y": doubles("y")}), folder, url=client, columns=["y"], by=by)
        assert (found.rows, found.rows_only_in_plan, found.equal) == (0, ROWS, False)
        none = fb.Plan(outputs={"y": doubles("y")}, filter="id > 100000")
        assert fb.compare(none, folder, url=client, columns=["y"], by=by).equal


def test_repeated_keys_are_reported(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"y": doubles("y")})
    found = fb.compare(plan, shards(tmp_path / "s", {"turn": TABLE["turn"], "y": TABLE["y"]}), url=client, by="turn")
    assert found.equal
    assert found.keys_repeated == len(set(TABLE["turn"].to_pylist()))
    assert "keys that occur more than once: 8" in repr(found)


def test_columns_of_one_side_are_differences(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"y": doubles("y"), "x": doubles("x")})
    folder = shards(tmp_path / "s", {"y": TABLE["y"], "renamed": TABLE["x"]})
    found = fb.compare(plan, folder, url=client)
    assert (found.columns_only_in_plan, found.columns_only_in_shards) == (("x",), ("renamed",))
    assert not found
    assert "columns only in the plan: x" in repr(found)
    assert fb.compare(plan, folder, url=client, columns=["y"])
    assert fb.compare(plan, folder, url=client, columns={"y": "y", "x": "renamed"})
    for wrong, words in (({"x": "no"}, "the shards have no column 'no'"), (["z"], "the plan has no output 'z'")):
        with pytest.raises(ValueError, match=words):
            fb.compare(plan, folder, url=client, columns=wrong)


def test_wide_sparse_vectors_are_expanded_in_slices(client: fb.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparing, "ELEMENTS_MAX", 1000)
    plan = fb.Plan(outputs={"v": fb.output(fb.cols("turn").one_hot(400), dtype="FLOAT64")})
    rows = np.eye(400)[TABLE["turn"].to_numpy()]
    assert fb.compare(plan, shards(tmp_path / "s", {"v": vectors(rows, sparse=True)}), url=client)


def test_the_frame_has_a_row_per_column(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"y": doubles("y"), "x": doubles("x")})
    frame = fb.compare(plan, shards(tmp_path / "s", {"y": TABLE["y"], "x": TABLE["y"]}), url=client).to_frame()
    assert frame["column"].tolist() == ["y", "x"]
    assert frame["status"].tolist() == ["equal", "differs"]
    assert frame["rows_differ"].tolist() == [0, ROWS]


def test_fitted_plans_and_ids(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"s": fb.output(fb.cols("x").standardize(), dtype="FLOAT64")})
    x = TABLE["x"].to_numpy()
    columns = {"id": TABLE["id"], "s": (x - x.mean()) / x.std()}
    folder = shards(tmp_path / "s", columns)
    fitted = client.fit("t", plan, progress=False)
    for one in (plan, fitted):
        assert fb.compare(one, folder, url=client.url, by="id", ulps=4, atol=1e-15)
    assert fb.compare(fitted.plan_id, folder, url=client.url, dataset="t", columns=["s"], ulps=4, atol=1e-15)
    with pytest.raises(ValueError, match="pass the FittedPlan"):
        fb.compare(fitted.plan_id, folder, url=client, by="id")


# === Bad files ===


def test_bad_shards_are_errors_that_name_them(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"y": doubles("y")})
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        fb.compare(plan, tmp_path / "missing", url=client)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no Parquet files"):
        fb.compare(plan, tmp_path / "empty", url=client)
    with pytest.raises(ValueError, match="shards is empty"):
        fb.compare(plan, [], url=client)
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(ValueError, match=r"text\.parquet: not readable Parquet files"):
        fb.compare(plan, tmp_path / "text.parquet", url=client)
    folder = shards(tmp_path / "mixed", {"y": TABLE["y"]})
    pq.write_table(pa.table({"y": ["text"]}), folder / "part-00009.parquet")
    with pytest.raises(ValueError, match=r"part-00009\.parquet: not readable Parquet files of one schema"):
        fb.compare(plan, folder, url=client)


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": 0, "size": 2**31 - 1, "indices": [0], "values": [1.0]},
        {"type": 0, "size": 3, "indices": [3], "values": [1.0]},
        {"type": 0, "size": 3, "indices": [-1], "values": [1.0]},
        {"type": 0, "size": 3, "indices": [0, 1], "values": [1.0]},
        {"type": 0, "size": -3, "indices": [], "values": []},
    ],
)
def test_vectors_that_contradict_themselves_are_errors(client: fb.Client, tmp_path: Path, wrong: dict[str, Any]):
    plan = fb.Plan(outputs={"v": doubles("x", "sparse", "y")})
    made = vectors(stacked("x", "sparse", "y")).to_pylist()
    made[5] = wrong
    with pytest.raises(ValueError, match=r"a vector has -?\d+ elements|a sparse vector has other indices"):
        fb.compare(plan, shards(tmp_path / "s", {"v": pa.array(made, VECTOR)}), url=client)


def test_null_vectors_differ_from_rows(client: fb.Client, tmp_path: Path):
    plan = fb.Plan(outputs={"v": doubles("x", "y")})
    rows: list[Any] = stacked("x", "y").tolist()
    rows[4] = None
    rows[8] = [1.0]
    found = fb.compare(plan, shards(tmp_path / "s", {"v": vectors(rows)}), url=client)
    assert [(one.row, one.shards) for one in only(found).differences] == [(4, None), (8, [1.0])]


def test_a_dataset_must_be_named_if_there_are_several(tmp_path: Path):
    folder = shards(tmp_path / "s", {"y": TABLE["y"]})
    url = fb.local(one=folder, two=folder)
    plan = fb.Plan(outputs={"y": doubles("y")})
    with pytest.raises(ValueError, match="dataset: the server has 2, pass one of one, two"):
        fb.compare(plan, folder, url=url)
    assert fb.compare(plan, folder, url=url, dataset="two")


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_ids_beyond_2_53_equal_those_in_decimals(serve: Serve, tmp_path: Path, kind: pa.DataType):
    ids = [(1 << 53) + at for at in range(50)] + [5, None]
    (tmp_path / "ids").mkdir()
    pq.write_table(pa.table({"id": pa.array(ids, kind)}), tmp_path / "ids/a.parquet")
    plan = fb.Plan(outputs={"id": fb.cols("id").as_stored()})
    with fb.connect(serve({"ids": tmp_path / "ids"}).url) as client:
        decimals = pa.array([None if one is None else Decimal(one) for one in ids], pa.decimal128(20, 0))
        for by in (None, ["id"]):
            options = {} if by is None else {"by": by}
            same = shards(tmp_path / f"same {by}", {"id": decimals})
            assert fb.compare(plan, same, dataset="ids", url=client, **options)
        # A double holds neither of the two.
        moved = pa.array(
            [Decimal((1 << 53) + 2) if one == (1 << 53) + 1 else one for one in decimals.to_pylist()],
            pa.decimal128(20, 0),
        )
        found = fb.compare(plan, shards(tmp_path / "moved", {"id": moved}), dataset="ids", url=client)
        assert only(found).rows_differ == 1
