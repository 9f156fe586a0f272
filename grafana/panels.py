"""Grafana's JSON for panels, rows, variables and dashboards, independent of Forebay's metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

# Schema of Grafana 12 and 13; newer versions migrate it when they load a dashboard.
SCHEMA_VERSION = 42
# Columns of Grafana's grid.
GRID = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HEIGHTS = {"stat": 4, "timeseries": 8, "table": 9}

Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """Queries by legend, or for a table by column, and their display options."""

    title: str
    description: str
    unit: str
    queries: Mapping[str, str]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 8
    stacked: bool = False
    # Upper end of the scale; 1 for a share.
    max: float | None = None
    # Thresholds for orange and red in a stat panel.
    warn: tuple[float, float] | None = None
    # Units of table columns that differ from the panel's.
    units: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Row:
    """A heading and its panels."""

    title: str
    panels: Sequence[Panel]


def target(number: int, legend: str, expr: str, kind: str) -> Json:
    """Return a query: over a time range for graphs, instant for single values."""
    instant = kind != "timeseries"
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expr,
        "format": "table" if kind == "table" else "time_series",
        "instant": instant,
        "legendFormat": legend,
        "range": not instant,
        "refId": chr(ord("A") + number),
    }


def thresholds(panel: Panel) -> Json:
    """Return the color thresholds of a panel."""
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.warn:
        steps += [{"color": color, "value": value} for color, value in zip(("orange", "red"), panel.warn, strict=True)]
    return {"mode": "absolute", "steps": steps}


def timeseries_parts(panel: Panel) -> Json:
    """Return the settings of a line or stacked-area panel."""
    custom = {
        "drawStyle": "line",
        "fillOpacity": 40 if panel.stacked else 10,
        "lineWidth": 1,
        "showPoints": "never",
        "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
    }
    defaults: Json = {"color": {"mode": "palette-classic"}, "custom": custom, "min": 0, "unit": panel.unit}
    if panel.max is not None:
        defaults["max"] = panel.max
    options = {
        "legend": {"calcs": ["mean", "lastNotNull"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def stat_parts(panel: Panel) -> Json:
    """Return the settings of a panel that shows the last value."""
    color = {"mode": "thresholds"}
    defaults = {"color": color, "thresholds": thresholds(panel), "unit": panel.unit}
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    }
    return {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def table_parts(panel: Panel) -> Json:
    """Return the settings of a table whose columns are queries joined by labels."""
    overrides = [
        {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "unit", "value": unit}]}
        for column, unit in panel.units.items()
    ]
    columns = {f"Value #{chr(ord('A') + number)}": column for number, column in enumerate(panel.queries)}
    organize = {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": columns}
    return {
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": overrides},
        "options": {"cellHeight": "sm", "showHeader": True},
        "transformations": [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}],
    }


PARTS = {"timeseries": timeseries_parts, "stat": stat_parts, "table": table_parts}


def panel_json(panel: Panel, number: int, x: int, y: int) -> Json:
    """Return a panel at a position of the grid."""
    targets = [target(n, legend, expr, panel.kind) for n, (legend, expr) in enumerate(panel.queries.items())]
    return {
        "datasource": DATASOURCE,
        "description": panel.description,
        "gridPos": {"h": HEIGHTS[panel.kind], "w": panel.width, "x": x, "y": y},
        "id": number,
        "targets": targets,
        "title": panel.title,
        "type": panel.kind,
        **PARTS[panel.kind](panel),
    }


def laid_out(rows: Sequence[Row]) -> list[Json]:
    """Place the rows below each other, and the panels of a row from left to right, wrapping at the grid's width."""
    placed: list[Json] = []
    y = 0
    for row in rows:
        heading = {"h": 1, "w": GRID, "x": 0, "y": y}
        placed.append(
            {
                "collapsed": False,
                "gridPos": heading,
                "id": len(placed) + 1,
                "panels": [],
                "title": row.title,
                "type": "row",
            }
        )
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > GRID:
                x, y, height = 0, y + height, 0
            placed.append(panel_json(panel, len(placed) + 1, x, y))
            x, height = x + panel.width, max(height, HEIGHTS[panel.kind])
        y += height
    return placed


def datasource_variable() -> Json:
    """Return the variable that selects the Prometheus data source."""
    return {
        "label": "Data source",
        "name": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }


def label_variable(name: str, label: str, query: str, *, all_value: str | None = None) -> Json:
    """Return a variable that selects one, several or all values of a label."""
    return {
        "allValue": all_value,
        "current": {"text": ["All"], "value": ["$__all"]},
        "datasource": DATASOURCE,
        "definition": query,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        # Type 1 is label_values in Grafana's variable editor.
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "type": "query",
    }


def dashboard(
    *, uid: str, title: str, description: str, variables: Sequence[Json], rows: Sequence[Row], refresh: str, since: str
) -> Json:
    """Return a dashboard with a link to the others with the same tag."""
    link = {
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "tags": ["forebay"],
        "targetBlank": False,
        "title": "Forebay",
        "type": "dashboards",
    }
    return {
        "annotations": {"list": []},
        "description": description,
        "editable": True,
        "graphTooltip": 1,
        "links": [link],
        "panels": laid_out(rows),
        "refresh": refresh,
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["forebay"],
        "templating": {"list": list(variables)},
        "time": {"from": f"now-{since}", "to": "now"},
        "timezone": "browser",
        "title": title,
        "uid": uid,
        "version": 1,
    }
