"""Windows over series: which rows each has, in any files, order, ranks and after every resume; against NumPy."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
from PIL import Image

import forebay as fb
from harness.cut_files import write
from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import Serve, Server, info, stored

Json = dict[str, Any]

RANDOM = np.random.default_rng(40)
# One long series over several files, series of one row and of exactly a window, and many of any length.
LENGTHS = [1, 700, 12, 13, 2, *RANDOM.integers(1, 60, 40).tolist(), 11, 1]
BEGINNING = datetime(2024, 2, 28, tzinfo=UTC)


def make_table() -> pa.Table:
    series = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    step = np.concatenate([np.arange(length) for length in LENGTHS])
    rows = len(series)
    times = [BEGINNING + timedelta(hours=int(hour)) for hour in step]
    return pa.table(
        {
            # Series are together, but not sorted.
            "series": pa.array((series * 7_919) % 101, pa.int32()),
            "name": [f"series {number % 5}" for number in series],
            "step": pa.array(step, pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "x": pa.array(RANDOM.normal(size=rows).astype(np.float32)),
            "y": pa.array(RANDOM.integers(0, 1_000, rows), pa.int32()),
            "tags": pa.array([list(range(row % 4)) for row in range(rows)], pa.list_(pa.int32())),
            "kind": pa.array([f"kind {row % 7}" for row in range(rows)]).dictionary_encode(),
            "z": pa.array([None if row % 9 == 0 else float(row) for row in range(rows)]),
        }
    )


TABLE = make_table()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Server:
    root = tmp_path_factory.mktemp("windows")
    write(root / "panel", TABLE, cuts=[133, 400, 400, 1_000], row_group_size=97)
    write(root / "rows_alone", TABLE, cuts=[], row_group_size=1)
    write(root / "whole", TABLE, cuts=[], row_group_size=100_000)
    return serve({place.name: place for place in root.iterdir()})


@pytest.fixture(scope="module")
def flight(server: Server) -> Iterator[fl.FlightClient]:
    with fl.connect(server.url) as connected:
        yield connected


def matrix(name: str, *columns: str, part: str | None = None, ops: Json | None = None, dtype: str = "FLOAT32") -> Json:
    found: Json = {"name": name, "dtype": dtype, "parts": [{"columns": list(columns), "ops": [ops] if ops else []}]}
    return {**found, "part": part} if part else found


FILL: Json = {"fill_null": {"value": -1.0}}
PLAN: Json = {
    "outputs": [
        matrix("past", "x", "y"),
        matrix("filled", "z", ops=FILL),
        matrix("future", "y", part="FUTURE", dtype="INT64"),
        matrix("last", "x", "y", part="STATIC"),
        *({**output, "part": "STATIC"} for output in stored("name", "kind")),
        matrix("tags", "tags", part="STATIC", dtype="INT32"),
    ]
}


@dataclass(frozen=True)
class Expected:
    """A window as rows of a table: -1 stands for padding."""

    past: list[int]
    future: list[int]


def expected(lengths: list[int], length: int, horizon: int, stride: int, *, pad: bool) -> list[Expected]:
    """The windows of series that follow each other."""
    found = []
    first = 0
    for rows in lengths:
        of_series = []
        for last in range(rows - horizon):
            start = last - length + 1
            if start % stride == 0 and (start >= 0 or pad):
                of_series.append(last)
        if pad and not of_series and rows > horizon:
            of_series.append(rows - horizon - 1)
        for last in of_series:
            past = [first + row if row >= 0 else -1 for row in range(last - length + 1, last + 1)]
            found.append(Expected(past, [first + last + 1 + row for row in range(horizon)]))
        first += rows
    return found


def window(length: int, horizon: int, stride: int = 1, *, pad: bool = False, **fields: Any) -> Json:
    return {
        "by": ["series"],
        "order": "ts",
        "length": length,
        "horizon": horizon,
        "stride": stride,
        "incomplete": "PAD" if pad else "DROP",
        **fields,
    }


def read(flight: fl.FlightClient, request: Json) -> pa.Table:
    """The windows of all ranks, one after another."""
    found = info(flight, {"plan": PLAN, "batch_size": 64, "with_row_ids": True, **request})
    tables = [flight.do_get(endpoint.ticket).read_all() for endpoint in found.endpoints]
    table = pa.concat_tables(tables)
    assert found.total_records == table.num_rows + request.get("start_position", 0)
    return table


def column(table: pa.Table, name: str, *shape: int) -> np.ndarray:
    combined = table[name].combine_chunks()
    values = combined.flatten() if pa.types.is_fixed_size_list(combined.type) else combined.storage.flatten()
    return values.to_numpy(zero_copy_only=False).reshape(table.num_rows, *shape)


def check(table: pa.Table, windows: list[Expected], rows: pa.Table = TABLE, row_ids: list[int] | None = None) -> None:
    """Compare windows, in order, with the rows of a table; `row_ids` numbers these."""
    numbers = row_ids or list(range(rows.num_rows))
    assert table["__row_id"].to_pylist() == [numbers[each.past[-1]] for each in windows]
    if not windows:
        return
    past = np.array([each.past for each in windows])
    future = np.array([each.future for each in windows])
    values = {name: rows[name].to_numpy(zero_copy_only=False) for name in ("x", "y")}
    filled = np.array([-1.0 if value is None else value for value in rows["z"].to_pylist()], np.float32)
    both = np.stack([values["x"], values["y"].astype(np.float32)], axis=1)
    length, horizon = past.shape[1], future.shape[1]
    assert np.array_equal(column(table, "filled", length, 1)[..., 0], np.where(past < 0, -1.0, filled[past]))
    if "past" in table.column_names:
        assert np.array_equal(column(table, "past", length, 2), both[past])
    assert np.array_equal(column(table, "future", horizon, 1)[..., 0], values["y"][future])
    assert np.array_equal(column(table, "last", 2), both[past[:, -1]])
    names = rows["name"].to_pylist()
    for name in ("kind", "tags"):
        whole = rows[name].to_pylist()
        assert table[name].to_pylist() == [whole[each.past[-1]] for each in windows]
    assert table["name"].to_pylist() == [names[each.past[-1]] for each in windows]


PADDED: Json = {"outputs": PLAN["outputs"][1:]}


@pytest.mark.parametrize("dataset", ["panel", "rows_alone", "whole"])
@pytest.mark.parametrize(
    ("length", "horizon", "stride"),
    [(1, 1, 1), (12, 1, 1), (12, 1, 5), (5, 3, 24), (48, 24, 24), (699, 1, 1), (700, 1, 1)],
)
def test_windows_are_the_rows_of_each_series(
    flight: fl.FlightClient, dataset: str, length: int, horizon: int, stride: int
) -> None:
    for pad in (False, True):
        request = {"dataset": dataset, "window": window(length, horizon, stride, pad=pad)}
        table = read(flight, {**request, "plan": PADDED if pad else PLAN})
        check(table, expected(LENGTHS, length, horizon, stride, pad=pad))


def test_shapes_are_in_the_schema(flight: fl.FlightClient) -> None:
    table = read(flight, {"dataset": "panel", "window": window(12, 3)})
    shapes = {name: table.schema.field(name).type for name in ("past", "filled", "future", "last")}
    found = {name: (list(kind.shape), str(kind.value_type)) for name, kind in shapes.items()}
    assert found == {
        "past": ([12, 2], "float"),
        "filled": ([12, 1], "float"),
        "future": ([3, 1], "int64"),
        "last": ([2], "float"),
    }


def test_rows_that_do_not_pass_are_not_there(flight: fl.FlightClient) -> None:
    passing = [
        row
        for row, (y, step) in enumerate(zip(TABLE["y"].to_pylist(), TABLE["step"].to_pylist(), strict=True))
        if y % 3 or step > 30
    ]
    rows = TABLE.take(passing)
    lengths = [len(list(each)) for _, each in itertools.groupby(rows["series"].to_pylist())]
    plan = {**PLAN, "filter": "y % 3 <> 0 OR step > 30"}
    for dataset in ("panel", "whole"):
        table = read(flight, {"dataset": dataset, "plan": plan, "window": window(7, 2, 3)})
        check(table, expected(lengths, 7, 2, 3, pad=False), rows, passing)
    nothing = read(flight, {"dataset": "panel", "plan": {**PLAN, "filter": "y > 5000"}, "window": window(7, 2)})
    assert nothing.num_rows == 0


def test_series_may_be_told_by_several_computed_columns_or_none(flight: fl.FlightClient) -> None:
    plan = {**PLAN, "derive": [{"name": "hours", "expr": "step * 2"}, {"name": "half", "expr": "series / 2"}]}
    plan["derive"].append({"name": "number", "expr": "__row_id"})
    request = {"dataset": "panel", "plan": plan}
    two = read(flight, {**request, "window": window(5, 1, by=["half", "series"], order="hours")})
    check(two, expected(LENGTHS, 5, 1, 1, pad=False))
    # All rows are one series, in the order of their numbers.
    whole = read(flight, {**request, "window": window(5, 1, by=[], order="number")})
    check(whole, expected([TABLE.num_rows], 5, 1, 1, pad=False))


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_share_the_windows(flight: fl.FlightClient, shuffle: bool) -> None:
    windows = expected(LENGTHS, 12, 2, 1, pad=False)
    for world_size in (1, 3):
        request = {"dataset": "panel", "window": window(12, 2), "world_size": world_size, "batch_size": 16}
        order = {"shuffle": True, "seed": 5, "lanes": 6, "window_rows": 64} if shuffle else {}
        table = read(flight, {**request, **order})
        ids = table["__row_id"].to_pylist()
        by_id = {each.past[-1]: each for each in windows}
        assert sorted(ids) == sorted(by_id)
        assert (ids != sorted(ids)) == shuffle
        check(table, [by_id[row] for row in ids])


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_resumes_at_any_position(flight: fl.FlightClient, shuffle: bool) -> None:
    request = {"dataset": "panel", "window": window(12, 2, pad=True), "plan": PADDED, "shuffle": shuffle, "seed": 9}
    request |= {"lanes": 4, "window_rows": 50} if shuffle else {}
    whole = read(flight, request)
    for batches in (1, 5, whole.num_rows // 64):
        rest = read(flight, {**request, "start_position": batches * 64})
        assert rest.equals(whole.slice(batches * 64))


def test_a_restart_finds_the_series_under_its_state(tmp_path: Path) -> None:
    write(tmp_path / "panel", TABLE, cuts=[400], row_group_size=97)
    bytes_read = []
    tables = []
    for _ in range(2):
        daemon = Daemon(*LOOPBACK, "--dataset", f"panel={tmp_path}/panel", "--state", f"{tmp_path}/state")
        with fl.connect(daemon.url) as flight:
            # The same series serve windows of every shape.
            for length in (5, 6):
                info(flight, {"dataset": "panel", "plan": PLAN, "window": window(length, 1)})
            bytes_read.append(scrape(daemon).value("forebay_storage_read_bytes_total"))
            tables.append(read(flight, {"dataset": "panel", "window": window(5, 1)}))
        daemon.stop()
    assert tables[0].equals(tables[1])
    assert bytes_read[1] < bytes_read[0]


def test_the_package_reads_windows_and_resumes_in_them(server: Server) -> None:
    """Tensors of a dataset with its state, and the refusal of a state of other windows."""
    torch = pytest.importorskip("torch")
    from forebay.torch import FlightDataset

    plan = fb.Plan(
        outputs={
            "past": [fb.cols("x", "y")],
            "future": fb.output([fb.cols("y")], dtype="INT64", part="future"),
            "name": fb.output([fb.cols("name").as_stored()], part="static"),
        }
    )
    assert fb.Plan.from_json(plan.to_json()) == plan
    shape = {"by": "series", "order": "ts", "length": 12, "horizon": 3, "stride": 2}

    def dataset(**changed: int) -> FlightDataset:
        return FlightDataset(server.url, "panel", plan, batch_size=32, shuffle=True, window={**shape, **changed})

    batches = list(dataset())
    windows = expected(LENGTHS, 12, 3, 2, pad=False)
    assert sum(len(batch["past"]) for batch in batches) == len(windows)
    assert batches[0]["past"].shape == (32, 12, 2)
    assert batches[0]["future"].shape == (32, 3, 1)
    assert batches[0]["future"].dtype == torch.int64
    assert len(batches[0]["name"]) == 32
    data = dataset()
    begun = iter(data)
    for _ in range(4):
        next(begun)
    resumed = dataset()
    resumed.load_state_dict(data.state_dict())
    assert all(torch.equal(one["past"], other["past"]) for one, other in zip(resumed, batches[4:], strict=True))
    state = data.state_dict()
    data = dataset(length=11)
    with pytest.raises(fb.CursorRefused, match="window"):
        data.load_state_dict(state)


def test_a_batch_of_windows_replays(flight: fl.FlightClient) -> None:
    request = {"dataset": "panel", "plan": PLAN, "window": window(12, 2), "shuffle": True, "seed": 3, "batch_size": 32}
    found = read(flight, request)["__row_id"].to_pylist()
    body = json.dumps({"stream": request, "rank": 0, "step": 2}).encode()
    replayed = json.loads(next(iter(flight.do_action(fl.Action("replay", body)))).body.to_pybytes())
    assert [row["row_id"] for row in replayed["rows"]] == found[64:96]


BAD: dict[str, tuple[pa.Table, str, str]] = {
    "unsorted times": (pa.table({"k": [1, 1, 1], "t": [1, 3, 2]}), "window.order", "row 2: .* before that of"),
    "equal times": (pa.table({"k": [1, 1, 2], "t": [1, 1, 1]}), "window.order", "row 1: .* remove duplicates"),
    "null times": (pa.table({"k": [1, 1, 2], "t": [1, 2, None]}), "window.order", "row 2: .* null"),
    "NaN times": (pa.table({"k": [1, 1], "t": [1.0, float("nan")]}), "window.order", "row 1: .* NaN"),
    "interleaved series": (pa.table({"k": ["a", "b", "a"], "t": [1, 2, 3]}), "window.by", "row 2: .* sort the dataset"),
    "lists": (pa.table({"k": [[1], [2]], "t": [1, 2]}), r"window.by\[0\]", "expected numbers"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("row_group_size", [1, 100])
def test_bad_panels_are_refused(tmp_path: Path, serve: Serve, name: str, row_group_size: int) -> None:
    table, field, reason = BAD[name]
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=row_group_size)
    server = serve({"bad": tmp_path})
    request = {"dataset": "bad", "plan": {"outputs": [matrix("t", "t", ops={"fill_null": {"value": 0.0}})]}}
    with fl.connect(server.url) as flight, pytest.raises(pa.ArrowInvalid, match=f"{field}.*{reason}"):
        info(flight, {**request, "window": {"by": ["k"], "order": "t", "length": 1}})


def test_null_and_nan_are_values_of_a_series(tmp_path: Path, serve: Serve) -> None:
    table = pa.table(
        {"k": [None, None, float("nan"), float("nan"), 0.5], "t": ["a", "b", "a", "b", "a"], "v": [1, 2, 3, 4, 5]}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    server = serve({"odd": tmp_path})
    request = {"dataset": "odd", "plan": {"outputs": [matrix("v", "v", dtype="INT64")]}}
    with fl.connect(server.url) as flight:
        found = info(flight, {**request, "window": {"by": ["k"], "order": "t", "length": 2}})
        table = flight.do_get(found.endpoints[0].ticket).read_all()
    assert column(table, "v", 2, 1)[..., 0].tolist() == [[1, 2], [3, 4]]


def test_windows_of_images(tmp_path: Path, serve: Serve) -> None:
    """Columns that functions compute, and tensors in matrices."""
    colours = RANDOM.integers(0, 255, (9, 3), dtype=np.uint8)

    def png(colour: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        Image.new("RGB", (4, 4), tuple(int(value) for value in colour)).save(buffer, "PNG")
        return buffer.getvalue()

    pq.write_table(
        pa.table({"t": range(9), "image": [png(colour) for colour in colours]}),
        tmp_path / "a.parquet",
        row_group_size=4,
    )
    decode = {"decode_image": {"height": 2, "width": 2}}
    plan = {"outputs": [matrix("image", "image", ops=decode, dtype="UINT8"), matrix("t", "t", part="FUTURE")]}
    for shuffle in (False, True):
        with fl.connect(serve({"images": tmp_path}).url) as flight:
            request = {"dataset": "images", "plan": plan, "shuffle": shuffle, "with_row_ids": True}
            found = info(flight, {**request, "window": {"order": "t", "length": 3, "horizon": 1}})
            table = flight.do_get(found.endpoints[0].ticket).read_all()
        assert list(table.schema.field("image").type.shape) == [3, 2, 2, 3]
        last = table["__row_id"].to_numpy().astype(np.int64)
        assert sorted(last) == list(range(2, 8))
        images = column(table, "image", 3, 2, 2, 3)
        assert (images == colours[last[:, None] + np.arange(-2, 1)][:, :, None, None, :]).all()


WRONG: dict[str, tuple[Json, str]] = {
    "an unknown column": ({"window": window(3, 1, by=["serie"])}, r"window.by\[0\].*series"),
    "an unknown order": ({"window": window(3, 1, order="tss")}, "window.order.*ts"),
    "no order": ({"window": window(3, 1, order="")}, "window.order"),
    "no length": ({"window": window(0, 1)}, "window.length"),
    "a part without windows": ({}, r"plan.outputs\[2\].part"),
    "a future without a horizon": ({"window": window(3, 0)}, r"plan.outputs\[2\].part"),
    "text of past rows": ({"window": window(3, 1), "plan": {"outputs": stored("name")}}, "STATIC"),
    "padding that an output does not take": ({"window": window(3, 1, pad=True)}, "window.incomplete.*fill_null"),
    "groups": ({"window": window(3, 1), "group_by": "name"}, "window.*group_by"),
    "a sample": ({"window": window(3, 1), "sample": 0.5}, "window.*sample"),
    "a balance": ({"window": window(3, 1), "balance": {"by": "name"}}, "window.*balance"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_requests_name_the_field(flight: fl.FlightClient, name: str) -> None:
    request, reason = WRONG[name]
    with pytest.raises(pa.ArrowInvalid, match=reason):
        info(flight, {"dataset": "panel", "plan": PLAN, **request})
