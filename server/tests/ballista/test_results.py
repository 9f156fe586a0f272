"""A query on a cluster writes what the embedded engine does."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cluster import Cluster
from harness.daemon import poll
from harness.object_store import Store, s3_server
from harness.prepare import manifest, prepare, written

# Each with a unique order of its rows.
ORDERED = {
    "join": "SELECT f.id, f.k, f.day, f.x, f.s, f.t, n.name FROM facts f JOIN names n ON f.k = n.k ORDER BY f.id",
    "left join": "SELECT f.*, n.name FROM facts f LEFT JOIN names n USING (k) ORDER BY f.id",
    "full join": "SELECT a.id, b.id AS other FROM facts a FULL JOIN facts b ON a.id = b.id + 100 ORDER BY a.id, b.id",
    "self join": """
        SELECT a.id, count(*) AS n FROM facts a JOIN facts b ON a.k = b.k AND a.id < b.id
        GROUP BY a.id ORDER BY a.id""",
    "anti join": "SELECT id FROM facts WHERE k NOT IN (SELECT k FROM names) ORDER BY id",
    "exists": "SELECT id FROM facts f WHERE EXISTS (SELECT 1 FROM names n WHERE n.k = f.k) ORDER BY id DESC",
    "window of groups": """
        SELECT id, row_number() OVER w AS nth, lag(x) OVER w AS before, sum(x) OVER w AS total
        FROM facts WINDOW w AS (PARTITION BY k ORDER BY id) ORDER BY id""",
    "window of all rows": """
        SELECT id, sum(x) OVER (ORDER BY id ROWS 10 PRECEDING) AS recent, ntile(7) OVER (ORDER BY id) AS part
        FROM facts ORDER BY id""",
    "groups": """
        SELECT k, day, count(*) AS n, count(x) AS xs, sum(x) AS total, avg(x) AS mean, min(t) AS first, max(s) AS last
        FROM facts GROUP BY k, day ORDER BY k, day""",
    "distinct counts": """
        SELECT day, count(DISTINCT k) AS ks, count(DISTINCT s) AS ss FROM facts GROUP BY day ORDER BY day""",
    "ordered lists": "SELECT k, array_agg(id ORDER BY id) AS ids FROM facts GROUP BY k ORDER BY k",
    "having": "SELECT s, sum(id) AS ids FROM facts GROUP BY s HAVING count(*) > 700 ORDER BY s",
    "scalar subquery": "SELECT id FROM facts WHERE x > (SELECT avg(x) FROM facts) ORDER BY id",
    "limit": "SELECT id, x FROM facts ORDER BY x DESC NULLS LAST, id LIMIT 100 OFFSET 17",
    "functions": """
        SELECT id, upper(s) AS s, date_trunc('month', t) AS month, round(x, 1) AS x,
               CASE WHEN k IS NULL THEN 'no' ELSE 'yes' END AS has
        FROM facts WHERE regexp_like(s, '[13]$') ORDER BY id""",
    "lists": "SELECT id, unnest(tags) AS tag FROM facts WHERE id < 900 ORDER BY id, tag",
    "no table": "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(n, s) ORDER BY n",
    "no rows": "SELECT id, x FROM facts WHERE id < 0 ORDER BY id",
}
UNORDERED = {
    "distinct": "SELECT DISTINCT s, day FROM facts",
    "filter": "SELECT * FROM facts WHERE x > 50",
    "groups": "SELECT k, sum(x) AS total FROM facts GROUP BY k",
    "cross join": "SELECT a.k, b.k AS other FROM names a CROSS JOIN names b WHERE a.k < 100",
}


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("name", ORDERED)
def test_ordered_results_have_the_same_rows_in_the_same_order(
    name: str, cluster: Cluster, inputs: dict[str, Path], tmp_path: Path
):
    here, there = tmp_path / "here", tmp_path / "there"
    expected = prepare(ORDERED[name], inputs, here).result
    found = prepare(ORDERED[name], inputs, there, *cluster.flags).result
    assert found["rows"] == expected["rows"]
    assert written(there).equals(written(here))
    assert manifest(there)["recipe"] == manifest(here)["recipe"]


@pytest.mark.parametrize("name", UNORDERED)
def test_results_without_an_order_have_the_same_rows(
    name: str, cluster: Cluster, inputs: dict[str, Path], tmp_path: Path
):
    here, there = tmp_path / "here", tmp_path / "there"
    assert prepare(UNORDERED[name], inputs, here).result["rows"] > 0
    assert prepare(UNORDERED[name], inputs, there, *cluster.flags).code == 0
    assert written(there).schema == written(here).schema
    assert rows(written(there)) == rows(written(here))


def test_both_executors_run_tasks_and_keep_no_data_of_a_job(cluster: Cluster, inputs: dict[str, Path], tmp_path: Path):
    assert prepare(ORDERED["self join"], inputs, tmp_path / "out", *cluster.flags).code == 0
    assert cluster.run_tasks(), cluster.log
    assert poll(lambda: not cluster.shuffled()), cluster.shuffled()


def test_a_bucket_is_read_by_the_executors(tmp_path: Path):
    with s3_server() as endpoint:
        bucket = Store(endpoint, "inputs")
        for part in range(3):
            body = io.BytesIO()
            pq.write_table(pa.table({"id": range(part * 1000, part * 1000 + 1000)}), body)
            bucket.put(f"in/day={part}/a b.parquet", body.getvalue())
        running = Cluster(tmp_path / "cluster")
        try:
            sql = "SELECT day, sum(id) AS ids FROM t GROUP BY day ORDER BY day"
            run = prepare(sql, {"t": bucket.url("in/")}, tmp_path / "out", *running.flags)
            assert run.code == 0, run.error
            assert written(tmp_path / "out")["ids"].to_pylist() == [499_500, 1_499_500, 2_499_500]
        finally:
            running.stop()


def test_a_result_is_up_to_date_for_both_engines(cluster: Cluster, inputs: dict[str, Path], tmp_path: Path):
    sql, out = ORDERED["limit"], tmp_path / "out"
    assert prepare(sql, inputs, out, *cluster.flags).result["status"] == "written"
    assert prepare(sql, inputs, out).result["status"] == "up_to_date"
    assert prepare(sql, inputs, out, *cluster.flags).result["status"] == "up_to_date"
