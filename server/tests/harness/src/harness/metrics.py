"""The Prometheus text of a running server, parsed strictly."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from harness.daemon import Daemon

Labels = frozenset[tuple[str, str]]


@dataclass
class Scrape:
    """The text format, parsed strictly: HELP and TYPE precede the samples, and no series repeats."""

    types: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for known, labels in self.samples if known == name]


def parse(text: str) -> Scrape:
    assert text.endswith("\n")
    scrape, helped = Scrape(), set[str]()
    for line in filter(None, text.split("\n")):
        if help_line := re.fullmatch(r"# HELP (\S+) \S.*", line):
            helped.add(help_line[1])
        elif type_line := re.fullmatch(r"# TYPE (\S+) (counter|gauge|histogram|summary)", line):
            assert type_line[1] not in scrape.types, line
            scrape.types[type_line[1]] = type_line[2]
        else:
            sample = re.fullmatch(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\\]*",?)*)\})? (\S+)', line)
            assert sample, line
            family = re.sub("_(bucket|sum|count)$", "", sample[1]) if sample[1] not in scrape.types else sample[1]
            assert family in scrape.types, line
            assert family in helped, line
            key = (sample[1], frozenset(re.findall(r'([a-z_]+)="([^"]*)"', sample[2] or "")))
            assert key not in scrape.samples, line
            scrape.samples[key] = float(sample[3])
    return scrape


def scrape(daemon: Daemon) -> Scrape:
    status, kind, text = daemon.get("/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    return parse(text)
