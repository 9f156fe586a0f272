"""What plans, outputs and previews print, in terminals of any width and in notebooks, also for hostile names."""

from __future__ import annotations

import html.parser
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay._show.preview import Preview
from forebay._show.terminal_text import text_width

HOSTILE = ["<script>alert(1)</script>", "a&b", "\"'><img src=x onerror=y>", "line\nbreak\x1b[31m", "</td></table>"]


class Tags(html.parser.HTMLParser):
    """The tags of a page, and whether each has attributes; the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes = 0
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += len(attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def hostile_plan() -> fb.Plan:
    return fb.Plan(
        filter=f"x <> '{HOSTILE[0]}'",
        derive={HOSTILE[3]: HOSTILE[4]},
        outputs={
            HOSTILE[1]: fb.cols(*HOSTILE).fill_null(text=HOSTILE[2]),
            HOSTILE[0]: fb.cols("x").vocab(values=HOSTILE),
        },
    )


def test_a_short_plan_is_one_line():
    assert repr(fb.Plan(outputs={"x": fb.cols("a").standardize()})) == (
        "Plan, to be fitted: x = cols('a').standardize()"
    )
    plan = fb.Plan(filter="a > 1", outputs={"x": fb.cols("a"), "y": fb.output(fb.cols("b"), dtype="INT64")})
    assert repr(plan) == "Plan: filter = 'a > 1'; x = cols('a'); y: INT64 = cols('b')"


def test_a_long_plan_is_a_tree_of_few_lines():
    words = [fb.cols(f"C{number}").vocab(values=[f"word {one}" for one in range(50_000)]) for number in range(26)]
    plan = fb.Plan(outputs={"cats": words, "dense": fb.cols(*(f"I{number}" for number in range(500))).log1p()})
    lines = repr(plan).splitlines()
    assert lines[:3] == [
        "Plan:",
        "  cats =",
        "    cols('C0').vocab(values=['word 0', 'word 1', 'word 2', 'word 3', … 49,996 more])",
    ]
    assert lines[-3:] == [
        "    … 19 more",
        "    cols('C25').vocab(values=['word 0', 'word 1', 'word 2', 'word 3', … 49,996 more])",
        "  dense = cols('I0', 'I1', 'I2', 'I3', 'I4', 'I5', … 493 more, 'I499').log1p()",
    ]
    assert len(lines) == 11
    assert len(repr(plan.outputs["cats"]).splitlines()) == 10
    assert len(plan._repr_html_()) < 5_000


def test_long_texts_are_cut():
    plan = fb.Plan(
        derive={"long": "x + " * 10_000 + "1"}, outputs={"x": fb.cols("c" * 10_000).fill_null(text="y" * 999)}
    )
    assert len(repr(plan)) < 1_000
    assert "'yyyy" in repr(plan)


def test_a_fitted_plan_is_a_table_of_its_ops_in_a_notebook():
    plan = fb.Plan(filter="a < 2", outputs={"x": fb.cols("a", "b").standardize(mean=1, std=2)})
    page = fb.FittedPlan("0123", plan)._repr_html_()
    found = Tags(page)
    assert found.text[0] == "fitted plan 0123, filter 'a < 2'"
    assert found.text[1:5] == ["output", "column", "op", "parameters"]
    assert found.text[5:9] == ["x", "a", "standardize", "mean=1, std=2"]
    assert page.count("<tr>") == 3
    wide = fb.Plan(outputs={"x": fb.cols(*(f"c{number}" for number in range(999))).log1p()})
    assert fb.FittedPlan("0123", wide)._repr_html_().count("<tr>") == 202


@pytest.mark.parametrize("kind", ["plan", "fitted", "output", "preview"])
def test_hostile_names_are_text(kind: str):
    plan = hostile_plan()
    shown = {
        "plan": plan,
        "fitted": fb.FittedPlan("0123", plan),
        "output": plan.outputs[HOSTILE[1]],
        "preview": Preview(HOSTILE[0], pa.table({name: [name, None] for name in HOSTILE})),
    }[kind]
    found = Tags(shown._repr_html_())
    assert found.tags <= {"p", "table", "tr", "th", "td", "br"}
    assert found.attributes == 0
    assert "<script>alert(1)" in "".join(found.text)
    assert "\x1b" not in repr(shown) + shown._repr_html_()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fb.Client]:
    file = tmp_path_factory.mktemp("wide") / "rows.parquet"
    columns: dict[str, object] = {f"c{number}": [number, None, 10**number] for number in range(18)}
    columns |= {"bytes": [b"\x01" * 300, b"", None], "words": [["a", "b"] * 99, [], None], "宽": ["宽" * 99, "", " x"]}
    pq.write_table(pa.table(columns), Path(file))
    with fb.connect(fb.local(wide=file)) as opened:
        yield opened


@pytest.mark.parametrize("width", [20, 40, 80, 200, 2_000])
def test_a_preview_fits_the_terminal(client: fb.Client, monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    preview = client.preview("wide", 3)
    assert preview.table.equals(client.head("wide", 3))
    heading, names, types, *rows = repr(preview).splitlines()
    assert len(rows) == 3
    assert all(text_width(line) <= width for line in (heading, names, types, *rows))
    shown = names.split()
    assert shown[0] == "c0"
    assert ("…" in shown) == (width < 2_000)
    assert width < 80 or shown[-1] == "宽"
    assert types.split()[0] == "int64"


def test_a_preview_shows_types_and_values(client: fb.Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    preview = client.preview("wide", 2, columns=["c3", "bytes", "words"])
    assert repr(preview).splitlines() == [
        "wide: first 2 rows, 3 columns",
        "c3     bytes                   words",
        "int64  binary                  list<element: string>",
        "3      <300 B: 010101010101…>  ['a', 'b', 'a', 'b', 'a…",
        "null   <0 B>                   []",
    ]
    found = Tags(client.preview("wide")._repr_html_())
    assert found.text[0] == "wide: first 3 rows, 21 columns"
    assert found.attributes == 0


def test_a_preview_of_many_rows_and_columns_is_bounded():
    preview = Preview("t", pa.table({f"c{number}": list(range(1_000)) for number in range(500)}))
    assert repr(preview).splitlines()[-1] == "… 940 more rows: see table"
    assert preview._repr_html_().count("<tr>") == 62
    assert Tags(preview._repr_html_()).text[0] == "t: first 1,000 rows, 500 columns, 460 not shown"
