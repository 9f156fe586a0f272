"""Fields of structs in filters and derived columns, by a dotted name and by `get_field`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.serving import Serve

INNER = pa.struct([("z", pa.float64())])
ROWS = pa.table({
    "s": pa.array(
        [{"x": 1, "a b": "one", "y": {"z": 2.0}}, {"x": None, "a b": None, "y": None}, None],
        pa.struct([("x", pa.int64()), ("a b", pa.string()), ("y", INNER)]),
    ),
    "n": [1, 2, 3],
})  # fmt: skip


@pytest.fixture(scope="module")
def client(serve: Serve, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("structs") / "a.parquet"
    pq.write_table(ROWS, path)
    with fb.connect(serve({"t": path}).url) as opened:
        yield opened


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("s.x", 1), ('"s"."x"', 1), ("get_field(s, 'x')", 1), ('s."a b"', "one"), ("s.y", {"z": 2.0}), ("s.y.z", 2.0),
        ("get_field(get_field(s, 'y'), 'z')", 2.0), ("s.x + s.y.z", 3.0),
    ],
)  # fmt: skip
def test_a_field_of_a_struct_is_a_column(client: fb.Client, expression: str, first: object):
    plan = fb.Plan(derive={"d": expression}, outputs={"d": fb.cols("d").as_stored()})
    found = pa.table(next(client.stream("t", plan)).data)["d"].to_pylist()
    assert found == [first, None, None]


@pytest.mark.parametrize("condition", ["s.x IS NOT NULL", "get_field(s, 'x') = 1", "s.y.z > 1", "s.\"a b\" = 'one'"])
def test_a_filter_reads_fields(client: fb.Client, condition: str):
    batch = next(client.stream("t", fb.Plan(filter=condition, outputs={"n": fb.cols("n")})))
    assert batch["n"].tolist() == [1]


@pytest.mark.parametrize("subscript", ["s['x']", "s['y']['z']"])
def test_subscripts_are_refused(client: fb.Client, subscript: str):
    with pytest.raises(fb.InvalidRequest, match="a subscript of this value is not supported"):
        next(client.stream("t", fb.Plan(filter=f"{subscript} > 0", outputs={"n": fb.cols("n")})))
