"""Random filters pass the rows for which they are true, in every layout of the table.

`FILTER_FUZZ_SEEDS` seeds from `FILTER_FUZZ_FIRST` on are searched, each with FILTER_FUZZ_EXPRESSIONS expressions.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.flight as fl
import pytest

from harness.filters import regressions
from harness.filters.columns import TYPES
from harness.filters.grammar import Expr
from harness.filters.layouts import PLAIN, Layout
from harness.filters.search import Disagreement, Stored, Tally, search
from harness.filters.seeds import run, run_cases
from harness.filters.tables import Drawn
from harness.parquet.surgery import Chunk, dissect
from harness.serving import Server

pytestmark = pytest.mark.long

SEEDS = int(os.environ.get("FILTER_FUZZ_SEEDS") or 12)
FIRST = int(os.environ.get("FILTER_FUZZ_FIRST") or 0)
EXPRESSIONS = int(os.environ.get("FILTER_FUZZ_EXPRESSIONS") or 30)

# Seeds of one server.
GROUP = 6


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, GROUP))
def test_random_filters_pass_the_rows_for_which_they_are_true(tmp_path: Path, first: int):
    tally = Tally()
    found = run(tmp_path, range(first, min(first + GROUP, FIRST + SEEDS)), EXPRESSIONS, tally)
    print(tally.summary())
    show(found)
    # A search of refusals would find nothing.
    assert tally.answered > 0.7 * tally.cases, tally.summary()
    assert tally.opinions > 0.4 * tally.cases, tally.summary()


def test_regressions_pass_the_right_rows(tmp_path: Path):
    tally = Tally()
    exprs = regressions.exprs(regressions.ANSWERED)
    found = run_cases(tmp_path, [(regressions.table(), exprs)], tally)
    show(found)
    assert tally.answered == len(exprs), tally.refused + tally.failed
    assert tally.opinions == sum(expr.duck is not None for expr in exprs), tally.unanswered


def test_rejects_expressions_without_a_defined_result(tmp_path: Path):
    tally = Tally()
    exprs = regressions.exprs(regressions.REFUSED)
    show(run_cases(tmp_path, [(regressions.table(), exprs)], tally))
    assert sum((tally.refused + tally.failed).values()) == len(exprs), tally.refused + tally.failed


def show(found: list[Disagreement]) -> None:
    if found:
        pytest.fail("\n\n".join(map(str, found)), pytrace=False)


LARGEST = 5  # of Statistics, the field `max_value`


def test_search_finds_a_lost_row(tmp_path: Path):
    """Checks the search itself: a maximum that is too low hides row 8 on one layout."""
    column = next(column for column in TYPES if column.name == "i64")
    table = Drawn(0, [column], {"i64": list(range(20))}, rows=20, portable=True)
    layouts = {"plain": PLAIN, "lying": Layout("pyarrow", 1, {"row_group_size": 5})}
    for name, layout in layouts.items():
        layout.write(table.table(), tmp_path / name)
    file = dissect(table.table(), layouts["lying"].options)
    file.chunk(1, "i64")[Chunk.STATISTICS][LARGEST] = (7).to_bytes(8, "little")
    (tmp_path / "lying/00.parquet").write_bytes(file.build())
    stored = Stored(table, layouts, {name: name for name in layouts}, tmp_path / "plain/00.parquet", range(20))
    exprs = [Expr(f"i64 = {value}", "bool", f"i64 = {value}", column="i64") for value in (7, 8)]
    server = Server({name: tmp_path / name for name in layouts})
    try:
        with fl.connect(server.url) as client:
            found = search(client, stored, exprs, Tally())
    finally:
        server.stop()
    assert [(one.layout_name, one.expr.sql) for one in found] == [("lying", "i64 = 8")]
    assert "passes 0 rows, the column is true for 1 rows (8 among them)" in found[0].what
