"""Groups of unsorted rows: a view sorts them once, spilling, and then each group reads only its row groups."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.daemon import LOOPBACK, Daemon
from harness.metrics import scrape
from harness.serving import info, plan_of, stored
from harness.views import lines

ROWS = 130_000
KEYS = 51
# Rows of 1 kB: the table is eight times --view-memory-bytes, and a row group of the view has fewer rows than a group.
PAYLOAD = "p" * 1000
MEMORY = "16MiB"
PLAN = plan_of(stored("id", "x"))


def table() -> pa.Table:
    rng = np.random.default_rng(6)
    names = np.array([f"station {number}" for number in range(KEYS)])
    key = pa.array(names[rng.integers(0, KEYS, ROWS)], mask=rng.random(ROWS) < 1 / KEYS)
    payload = pa.array([PAYLOAD]).take(pa.array(np.zeros(ROWS, np.int32)))
    return pa.table({"id": rng.permutation(ROWS), "key": key, "x": rng.normal(size=ROWS), "payload": payload})


def read_bytes(daemon: Daemon) -> float:
    return scrape(daemon).value("forebay_storage_read_bytes_total")


def whole_bytes(daemon: Daemon, client: fl.FlightClient, dataset: str) -> float:
    """The bytes that one stream of all rows reads, with the key."""
    before = read_bytes(daemon)
    every = plan_of(stored("id", "x"), filter="key IS NOT NULL OR key IS NULL")
    found = info(client, {"dataset": dataset, "plan": every})
    assert client.do_get(found.endpoints[0].ticket).read_all().num_rows == ROWS
    return read_bytes(daemon) - before


def read_groups(daemon: Daemon, client: fl.FlightClient, dataset: str) -> tuple[dict[str | None, pa.Table], float]:
    """The rows of every group, in the order of the keys, and the bytes that their streams read."""
    endpoints = info(client, {"dataset": dataset, "plan": PLAN, "group_by": "key"}).endpoints
    before = read_bytes(daemon)
    groups = {json.loads(end.app_metadata)["key"]: client.do_get(end.ticket).read_all() for end in endpoints}
    return groups, read_bytes(daemon) - before


def test_a_view_in_the_order_of_the_key_gives_the_same_groups_for_one_read(tmp_path: Path):
    rows = table()
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t/0.parquet", row_group_size=ROWS // 8)
    view = "t_by_key=SELECT * FROM t ORDER BY key, id"
    flags = ("--view", view, "--view-memory-bytes", MEMORY, "--state", str(tmp_path / "state"), *LOOPBACK)
    daemon = Daemon("--dataset", f"t={tmp_path / 't'}", *flags)
    try:
        with fl.connect(daemon.url) as client:
            once = whole_bytes(daemon, client, "t")
            scattered, of_scattered = read_groups(daemon, client, "t")
            sorted_, of_sorted = read_groups(daemon, client, "t_by_key")
        (run,) = lines(daemon, "view run ended")
    finally:
        daemon.stop()
    assert run["spilled_bytes"] > ROWS * len(PAYLOAD)
    frame = pd.DataFrame({name: rows[name].to_pandas() for name in ("id", "key", "x")})
    want = {None if pd.isna(key) else key: of_key for key, of_key in frame.groupby("key", dropna=False)}
    assert list(sorted_) == list(scattered) == [*sorted(key for key in want if key is not None), None]
    for key, of_key in want.items():
        in_order = of_key.sort_values("id")
        assert sorted_[key]["id"].to_pylist() == in_order["id"].tolist()
        assert sorted_[key]["x"].to_pylist() == in_order["x"].tolist()
        assert scattered[key]["id"].to_pylist() == of_key["id"].tolist()
    # Every group has rows in each of the eight row groups; sorted, only the row groups at both ends are shared.
    assert of_scattered > 0.9 * len(want) * once
    assert of_sorted <= 2 * once
