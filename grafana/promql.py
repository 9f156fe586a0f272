"""PromQL expressions shared by all panels: series selected by the dashboard's variables, rates, ratios."""

from __future__ import annotations

# Codes of server-side errors; all others are errors of the client.
SERVER_CODES = "UNKNOWN|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL|UNAVAILABLE|DATA_LOSS"

# Smaller than any rate of a counter, so that 0/0 becomes 0.
TINY = "1e-9"

# Legend of one line per instance.
INSTANCE = "{{instance}}"


def series(name: str, *matchers: str) -> str:
    """Return the selector of a metric, restricted to the dashboard's job and instance."""
    chosen = ('job=~"$job"', 'instance=~"$instance"', *matchers)
    return f"{name}{{{', '.join(chosen)}}}"


def rate(name: str, *matchers: str) -> str:
    """Return the increase per second of a counter."""
    return f"rate({series(name, *matchers)}[$__rate_interval])"


def total(vector: str, *, by: str = "") -> str:
    """Return the sum of all series, or per value of the labels `by`."""
    return f"sum by ({by}) ({vector})" if by else f"sum({vector})"


def ratio(part: str, whole: str, *, by: str) -> str:
    """Return part / whole by label: 0 if the part has no series or the whole is 0."""
    whole = total(whole, by=by)
    return f"({total(part, by=by)} or 0 * {whole}) / clamp_min({whole}, {TINY})"


def shares(name: str, label: str, *matchers: str) -> str:
    """Return the share of each value of the label in their sum."""
    spent = rate(name, *matchers)
    return f"{total(spent, by=label)} / ignoring({label}) group_left () clamp_min({total(spent)}, {TINY})"


def quantile(share: float, histogram: str) -> str:
    """Return a quantile of a histogram; empty without observations."""
    return f"histogram_quantile({share}, {total(rate(f'{histogram}_bucket'), by='le')})"


def each(vector: str) -> dict[str, str]:
    """Return one line per instance."""
    return {INSTANCE: total(vector, by="instance")}


def by(label: str, vector: str) -> dict[str, str]:
    """Return one line per value of a label, summed over instances."""
    return {f"{{{{{label}}}}}": total(vector, by=label)}


def quantiles(histogram: str) -> dict[str, str]:
    """Return the median and the 95th and 99th percentiles."""
    return {f"p{100 * share:g}": quantile(share, histogram) for share in (0.5, 0.95, 0.99)}
