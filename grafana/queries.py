"""The dashboards' queries and a Prometheus client, for pictures and tests."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARDS = sorted((Path(__file__).parent / "dashboards").glob("*.json"))


@dataclass(frozen=True)
class Query:
    """One query of a panel."""

    dashboard: str
    row: str
    panel: dict[str, Any]
    expr: str
    legend: str

    def __str__(self) -> str:
        """Return dashboard, row, panel and expression."""
        return f"{self.dashboard} / {self.row} / {self.panel['title']}: {self.expr}"


@dataclass(frozen=True)
class Answer:
    """A series returned by Prometheus: times in seconds and values."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    def named(self, legend: str) -> str:
        """Return the legend with the labels filled in."""
        return re.sub(r"{{(\w+)}}", lambda label: self.labels.get(label[1], ""), legend)


class Prometheus:
    """The HTTP API of a running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a response; raise ValueError with the reason if the API rejects the request."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise ValueError(f"{path} {parameters}: {refused.read().decode()}") from refused

    def now(self, expr: str) -> list[Answer]:
        """Evaluate at the current time."""
        found = self.get("query", query=expr)["result"]
        return [Answer(each["metric"], [(each["value"][0], float(each["value"][1]))]) for each in found]

    def between(self, expr: str, start: float, end: float, step: float) -> list[Answer]:
        """Evaluate at every step from start to end."""
        found = self.get("query_range", query=expr, start=str(start), end=str(end), step=str(step))["result"]
        return [Answer(each["metric"], [(t, float(value)) for t, value in each["values"]]) for each in found]


def panels(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the panels, each with its row's title."""
    row = ""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            yield row, panel


def queries(path: Path) -> list[Query]:
    """Return all queries of a dashboard."""
    return [
        Query(path.stem, row, panel, target["expr"], target["legendFormat"])
        for row, panel in panels(json.loads(path.read_text()))
        for target in panel["targets"]
    ]


def chosen(text: str, values: Mapping[str, str]) -> str:
    """Substitute variables; raise KeyError for an unknown one."""
    return re.sub(r"\$(\w+)", lambda name: values[name[1]], text)
