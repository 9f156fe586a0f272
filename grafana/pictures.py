"""Draws every panel with the current results of its queries, one image per dashboard row. Needs matplotlib.

    python grafana/pictures.py --prometheus http://127.0.0.1:9090 --minutes 15

Titles, layout, units, legends and queries are those of the dashboards; matplotlib draws them, not Grafana.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, StrMethodFormatter
from PIL import Image

from queries import DASHBOARDS, Answer, Prometheus, chosen, panels

PICTURES = Path(__file__).parent / "pictures"
# Grafana's grid has 24 columns and rows of 38 pixels; images are sized in inches at this many dots per inch.
DOTS = 72
SHEET_INCHES = 15
GRID_COLUMNS = 24
GRID_ROW_INCHES = 0.42
COLORS = 160
# Legend space below a panel of 8 columns: rows, and the longest label that fits two columns.
LEGEND_ROWS = 4
LEGEND_CHARACTERS = 34


@dataclass(frozen=True)
class Span:
    """Time range, step and variables of the queries."""

    start: float
    end: float
    step: float
    variables: dict[str, str]


def scaled(value: float, base: float, prefixes: Sequence[str], unit: str) -> str:
    """Format a value with the largest suitable prefix."""
    power = min(int(math.log(abs(value), base)), len(prefixes) - 1) if abs(value) >= 1 else 0
    return f"{value / base**power:.3g} {prefixes[power]}{unit}".rstrip()


def seconds(value: float) -> str:
    """Format a duration."""
    if abs(value) >= 120:
        return f"{value / 3600:.3g} h" if abs(value) >= 7200 else f"{value / 60:.3g} min"
    if abs(value) >= 1 or value == 0:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} µs"


SI = ("", "k", "M", "G", "T")
UNITS: dict[str, Callable[[float], str]] = {
    "Bps": lambda value: scaled(value, 1000, SI, "B/s"),
    "bytes": lambda value: scaled(value, 1024, ("", "Ki", "Mi", "Gi", "Ti"), "B"),
    "cps": lambda value: scaled(value, 1000, SI, "/s"),
    "percentunit": lambda value: f"{100 * value:.3g} %",
    "reqps": lambda value: scaled(value, 1000, SI, "req/s"),
    "rowsps": lambda value: scaled(value, 1000, SI, "rows/s"),
    "s": seconds,
    "short": lambda value: scaled(value, 1000, ("", "K", "Mil", "Bil"), ""),
}


def formatted(value: float, unit: str) -> str:
    """Format a value in one of Grafana's units."""
    return UNITS[unit](value) if math.isfinite(value) else "no data"


def answers(prometheus: Prometheus, panel: dict[str, Any], span: Span) -> list[tuple[str, Answer]]:
    """Run a panel's queries; return each series with its legend."""
    found: list[tuple[str, Answer]] = []
    for target in panel["targets"]:
        expr = chosen(target["expr"], span.variables)
        series = (
            prometheus.now(expr) if target["instant"] else prometheus.between(expr, span.start, span.end, span.step)
        )
        found += [(answer.named(target["legendFormat"]), answer) for answer in series]
    return sorted(found, key=lambda pair: pair[0]) if len(panel["targets"]) == 1 else found


def draw_stat(axes: Axes, panel: dict[str, Any], found: list[tuple[str, Answer]]) -> None:
    """Draw the last value in the color of the highest threshold that it reaches."""
    defaults = panel["fieldConfig"]["defaults"]
    text, color = "no data", "tab:red"
    if found:
        value = found[0][1].points[-1][1]
        text = formatted(value, defaults["unit"])
        steps = defaults["thresholds"]["steps"]
        color = next(step["color"] for step in reversed(steps) if step["value"] is None or value >= step["value"])
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=17, color=f"tab:{color.removeprefix('tab:')}")
    axes.axis("off")


def draw_table(axes: Axes, panel: dict[str, Any], found: list[tuple[str, Answer]]) -> None:
    """Draw a table with one column per query, joined by labels."""
    columns = [target["legendFormat"] for target in panel["targets"]]
    units = {each["matcher"]["options"]: each["properties"][0]["value"] for each in panel["fieldConfig"]["overrides"]}
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for column, answer in found:
        unit = units.get(column, panel["fieldConfig"]["defaults"]["unit"])
        rows.setdefault(tuple(sorted(answer.labels.items())), {})[column] = formatted(answer.points[-1][1], unit)
    labels = sorted({name for row in rows for name, _ in row})
    cells = [[dict(row)[name] for name in labels] + [rows[row].get(c, "") for c in columns] for row in sorted(rows)]
    axes.axis("off")
    table = axes.table(
        cells or [[""] * len(columns)], colLabels=labels + columns if cells else columns, loc="upper center"
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)


def draw_lines(axes: Axes, panel: dict[str, Any], found: list[tuple[str, Answer]], span: Span) -> None:
    """Draw one line or stacked area per series."""
    defaults = panel["fieldConfig"]["defaults"]
    unit = defaults["unit"]

    def amount(value: float, _: object) -> str:
        return formatted(value, unit)

    names = [f"{name}  {formatted(answer.points[-1][1], unit)}" for name, answer in found]
    if defaults["custom"]["stacking"]["mode"] == "normal" and found:
        times = sorted({t for _, answer in found for t, _ in answer.points})
        heights = [[dict(answer.points).get(t, 0.0) for t in times] for _, answer in found]
        axes.stackplot([(t - span.end) / 60 for t in times], heights, labels=names, alpha=0.7)
    else:
        for (_, answer), name in zip(found, names, strict=True):
            when = [(t - span.end) / 60 for t, _ in answer.points]
            axes.plot(when, [value for _, value in answer.points], label=name, lw=1.2)
    top = defaults.get("max") or max((value for _, answer in found for _, value in answer.points), default=1.0) or 1.0
    if defaults["custom"]["stacking"]["mode"] == "normal":
        top = defaults.get("max") or axes.get_ylim()[1]
    # Leave room below 0, so that a line at 0 is visible.
    axes.set_ylim(-0.02 * top, 1.06 * top)
    axes.set_xlim((span.start - span.end) / 60, 0)
    axes.yaxis.set_major_formatter(FuncFormatter(amount))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g} min"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = 2 if len(handles) > 2 and max(map(len, labels)) <= LEGEND_CHARACTERS else 1
        shown = handles[: columns * LEGEND_ROWS], labels[: columns * LEGEND_ROWS]
        place = (-0.02, -0.11)
        axes.legend(*shown, ncol=columns, loc="upper left", bbox_to_anchor=place, fontsize=8, frameon=False)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="tab:red")


def draw_sheet(prometheus: Prometheus, sheet: Sequence[dict[str, Any]], span: Span, path: Path) -> None:
    """Draw the panels of a row at their grid positions."""
    top = min(panel["gridPos"]["y"] for panel in sheet)
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in sheet)
    height = (bottom - top) * GRID_ROW_INCHES
    figure = plt.figure(figsize=(SHEET_INCHES, height), dpi=DOTS)
    for panel in sheet:
        place = panel["gridPos"]
        left, width = place["x"] / GRID_COLUMNS, place["w"] / GRID_COLUMNS
        low = 1 - (place["y"] - top + place["h"]) * GRID_ROW_INCHES / height
        tall = place["h"] * GRID_ROW_INCHES / height
        title = 0.34 / height
        legend = 1.1 / height if panel["type"] == "timeseries" else 0.0
        margin = 0.85 / SHEET_INCHES if panel["type"] == "timeseries" else 0.01
        box = (left + margin, low + legend, width - margin - 0.02, tall - legend - title)
        axes = figure.add_axes(box)
        axes.set_title(panel["title"], fontsize=11, loc="left")
        found = answers(prometheus, panel, span)
        if panel["type"] == "timeseries":
            draw_lines(axes, panel, found, span)
        else:
            {"stat": draw_stat, "table": draw_table}[panel["type"]](axes, panel, found)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    plt.close(figure)
    # A small palette makes a small file.
    Image.open(drawn).convert("RGB").quantize(COLORS).save(path, optimize=True)
    print(path, path.stat().st_size)


def draw(url: str, *, minutes: float, rate_interval: str) -> None:
    """Draw all rows of all dashboards over the last `minutes`."""
    mpl.use("Agg")
    prometheus = Prometheus(url)
    every = {"job": "forebay.*", "instance": ".+", "dataset": ".*", "stream": ".*", "__rate_interval": rate_interval}
    end = time.time()
    span = Span(end - 60 * minutes, end, max(1.0, 60 * minutes / 300), every)
    PICTURES.mkdir(exist_ok=True)
    for path in DASHBOARDS:
        for row, of_row in groupby(panels(json.loads(path.read_text())), key=lambda pair: pair[0]):
            name = re.sub(r"\W+", "-", row.lower())
            draw_sheet(prometheus, [panel for _, panel in of_row], span, PICTURES / f"{path.stem}-{name}.png")


def main() -> None:
    """Draw from a running Prometheus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="URL of Prometheus")
    parser.add_argument("--minutes", type=float, default=15, help="minutes to draw")
    parser.add_argument("--rate-interval", default="1m", help="window of rates: at least four scrapes")
    arguments = parser.parse_args()
    draw(arguments.prometheus, minutes=arguments.minutes, rate_interval=arguments.rate_interval)


if __name__ == "__main__":
    main()
