"""Words of PromQL that every panel uses: a server's series as the dashboard's variables choose them, rates, ratios."""

from __future__ import annotations

# Codes by which a server says that the fault, or the lack, is on its side. The others tell the caller of its own.
SERVER_CODES = "UNKNOWN|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL|UNAVAILABLE|DATA_LOSS"

# Below every rate that counters of whole events or seconds can show: a ratio of nothing to nothing becomes 0.
TINY = "1e-9"

# The legend of a line that is an instance.
INSTANCE = "{{instance}}"


def series(name: str, *matchers: str) -> str:
    """Name the series of a metric that the dashboard's job and instance choose."""
    chosen = ('job=~"$job"', 'instance=~"$instance"', *matchers)
    return f"{name}{{{', '.join(chosen)}}}"


def rate(name: str, *matchers: str) -> str:
    """Give the increase per second of a counter."""
    return f"rate({series(name, *matchers)}[$__rate_interval])"


def total(vector: str, *, by: str = "") -> str:
    """Add up all series, or those of each value of the labels `by`."""
    return f"sum by ({by}) ({vector})" if by else f"sum({vector})"


def ratio(part: str, whole: str, *, by: str) -> str:
    """Give the part of a whole, by label: 0 where no series has the part, and where the whole is 0."""
    whole = total(whole, by=by)
    return f"({total(part, by=by)} or 0 * {whole}) / clamp_min({whole}, {TINY})"


def shares(name: str, label: str, *matchers: str) -> str:
    """Give each value of the label as its part of all of them together."""
    spent = rate(name, *matchers)
    return f"{total(spent, by=label)} / ignoring({label}) group_left () clamp_min({total(spent)}, {TINY})"


def quantile(share: float, histogram: str) -> str:
    """Say below what so many of the observations stay; there is nothing while nothing is observed."""
    return f"histogram_quantile({share}, {total(rate(f'{histogram}_bucket'), by='le')})"


def each(vector: str) -> dict[str, str]:
    """Draw one line an instance."""
    return {INSTANCE: total(vector, by="instance")}


def by(label: str, vector: str) -> dict[str, str]:
    """Draw one line for each value of a label, all instances together."""
    return {f"{{{{{label}}}}}": total(vector, by=label)}


def quantiles(histogram: str) -> dict[str, str]:
    """Draw the median, the slowest twentieth and the slowest hundredth."""
    return {f"p{100 * share:g}": quantile(share, histogram) for share in (0.5, 0.95, 0.99)}
