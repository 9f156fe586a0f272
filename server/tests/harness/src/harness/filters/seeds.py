"""Runs the search for a range of seeds on one server: tables, layouts and expressions are drawn from the seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow.flight as fl

from harness.filters import rules  # noqa: F401
from harness.filters.grammar import Expr, Grammar
from harness.filters.layouts import PLAIN, draw_layouts
from harness.filters.search import Disagreement, Stored, Tally, search
from harness.filters.shrink import SCRATCH, Shrinker
from harness.filters.tables import Drawn, draw_table
from harness.serving import Server

LAYOUTS = 3
# The share of expressions that are filters; the others are values of these kinds, compared between layouts.
FILTERS = 0.8
VALUES = ("narrow", "i64", "u64", "f32", "f64", "decimal", "stamp", "zoned", "date", "text")
# Disagreements that are shrunk and reported; one defect causes many.
SHOWN = 6


def run(root: Path, seeds: Sequence[int], expressions: int, tally: Tally) -> list[Disagreement]:
    """Searches the seeds and returns the first disagreements, shrunk."""
    drawn = [draw_table(seed) for seed in seeds]
    return run_cases(root, [(table, draw_exprs(table, expressions)) for table in drawn], tally)


def run_cases(root: Path, cases: Sequence[tuple[Drawn, list[Expr]]], tally: Tally) -> list[Disagreement]:
    """Searches tables, each with its expressions."""
    stored = [store(root, table) for table, _ in cases]
    folders = {dataset: root / dataset for one in stored for dataset in one.datasets.values()}
    for name in SCRATCH:
        PLAIN.write(stored[0].table.table(), root / name)
        folders[name] = root / name
    server = Server(folders)
    try:
        with fl.connect(server.url) as client:
            found: list[Disagreement] = []
            for one, (_, exprs) in zip(stored, cases, strict=True):
                found += search(client, one, exprs, tally)
            small = [Shrinker(client, root, disagreement).shrink() for disagreement in one_a_kind(found)[:SHOWN]]
        assert server.alive, "the server exited:\n" + "".join(list(server.log)[-5:])
        return small
    finally:
        server.stop()


def store(root: Path, table: Drawn) -> Stored:
    layouts = draw_layouts(table, LAYOUTS)
    datasets = {name: f"seed{table.seed}-{name}" for name in layouts}
    for name, layout in layouts.items():
        layout.write(table.table(), root / datasets[name])
    return Stored(table, layouts, datasets, root / datasets["plain"] / "00.parquet", range(table.rows))


def draw_exprs(table: Drawn, count: int) -> list[Expr]:
    random = Random(f"expressions {table.seed}")
    grammar = Grammar(table, random)
    values = [kind for kind in grammar.kinds if kind in VALUES] or ["bool"]
    return [grammar.draw("bool" if random.random() < FILTERS else random.choice(values)) for _ in range(count)]


def one_a_kind(found: list[Disagreement]) -> list[Disagreement]:
    """The first disagreement of each expression, which mostly repeats on other layouts."""
    return list({disagreement.expr.sql: disagreement for disagreement in reversed(found)}.values())[::-1]
