"""Shrinks a disagreement: drops parts of the expression, then rows, as long as it remains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.flight as fl

from harness.filters.grammar import FAMILIES, Expr
from harness.filters.layouts import PLAIN
from harness.filters.search import Disagreement, Stored, Tally, search

TRIES_MAX = 150

# Datasets of the server whose files are replaced with every try.
SCRATCH = ("scratch-plain", "scratch-other")


class Shrinker:
    """Tries smaller cases on the scratch datasets of a server, which are directories under `root`."""

    def __init__(self, client: fl.FlightClient, root: Path, found: Disagreement) -> None:
        self._client = client
        self._root = root
        self._best = found
        self._rows: list[int] = list(range(found.table.rows))
        self._tries = 0

    def shrink(self) -> Disagreement:
        """The smallest disagreement found, with its rows."""
        self._store(self._rows)
        if self._fails(self._best.expr, self._rows) is None:
            return replace(self._best, what=self._best.what + "\n  (not reproduced on a second copy of the rows)")
        while self._drop_parts() or self._drop_rows():
            pass
        self._store(self._rows)
        return replace(self._best, what=f"{self._best.what}\n  rows {self._shown()}")

    def _store(self, rows: Sequence[int]) -> Stored:
        table = self._best.table.table(list(rows))
        plain = self._best.layout == PLAIN
        layouts = {"plain": PLAIN} if plain else {"plain": PLAIN, self._best.layout_name: self._best.layout}
        datasets = dict(zip(layouts, SCRATCH, strict=False))
        for name, layout in layouts.items():
            layout.write(table, self._root / datasets[name])
        file = self._root / SCRATCH[0] / "00.parquet"
        return Stored(self._best.table, layouts, datasets, file, rows)

    def _fails(self, expr: Expr, rows: Sequence[int]) -> Disagreement | None:
        self._tries += 1
        found = search(self._client, self._store(rows), [expr], Tally())
        return next((one for one in found if one.layout_name == self._best.layout_name), None)

    def _drop_parts(self) -> bool:
        for smaller in smaller_exprs(self._best.expr):
            if self._tries >= TRIES_MAX:
                return False
            if found := self._fails(smaller, self._rows):
                self._best = found
                return True
        return False

    def _drop_rows(self) -> bool:
        size = len(self._rows) // 2
        while size:
            for start in range(0, len(self._rows), size):
                fewer = self._rows[:start] + self._rows[start + size :]
                if self._tries >= TRIES_MAX:
                    return False
                if fewer and (found := self._fails(self._best.expr, fewer)):
                    self._best, self._rows = found, fewer
                    return True
            size //= 2
        return False

    def _shown(self) -> str:
        table = self._best.table
        used = [column.name for column in table.columns if re.search(rf"\b{column.name}\b", self._best.expr.sql)]
        return str(table.table(self._rows).select(["id", *used]).to_pydict())


def smaller_exprs(expr: Expr) -> Iterator[Expr]:
    """The expression with itself or one part replaced by a descendant of the same family."""
    inside = [part for part in expr.walk() if part is not expr and part.kind in FAMILIES]
    if expr.kind in FAMILIES:
        yield from (part for part in inside if FAMILIES[part.kind] == FAMILIES[expr.kind] and part.reads_columns)
    for index, part in enumerate(expr.parts):
        for smaller in smaller_exprs(part):
            yield expr.with_part(index, smaller)
        if part.kind == "bool" and part.parts:
            yield from (expr.with_part(index, Expr(text, "bool", text)) for text in ("true", "false"))
