"""The streams dashboard: rates and bottlenecks of each open stream."""

from __future__ import annotations

from overview import instance_variables
from panels import Json, Panel, Row, dashboard, label_variable
from promql import TINY, rate, series, shares

# Lines per panel; a server lists up to 1000 streams.
LINES = 20
CHOSEN = ('dataset=~"$dataset"', 'stream=~"$stream"')
SEND_WAIT = 'stage="send_wait"'
COMPUTES = 'stage=~"decode|transform|assemble"'
IDENTITY = "instance, stream, dataset, epoch, rank"
STREAM = "{{stream}} {{dataset}} epoch {{epoch}} rank {{rank}}"


def stream(name: str, *matchers: str) -> str:
    """Return the selector of the selected streams' series."""
    return series(name, *CHOSEN, *matchers)


def stream_rate(name: str, *matchers: str) -> str:
    """Return the increase per second of a counter of the selected streams."""
    return rate(name, *CHOSEN, *matchers)


def each(vector: str) -> str:
    """Aggregate by the labels that identify a stream."""
    return f"max by ({IDENTITY}) ({vector})"


def lowest(vector: str) -> dict[str, str]:
    """Return the streams with the lowest values."""
    return {STREAM: f"bottomk({LINES}, {each(vector)})"}


def highest(vector: str) -> dict[str, str]:
    """Return the streams with the highest values."""
    return {STREAM: f"topk({LINES}, {each(vector)})"}


ROWS_RATE = stream_rate("forebay_stream_rows_total")
BYTES_RATE = stream_rate("forebay_stream_bytes_total")
SEND_WAIT_RATE = stream_rate("forebay_stream_stage_seconds_total", SEND_WAIT)
STAGE_RATE = stream_rate("forebay_stream_stage_seconds_total")
POSITION = stream("forebay_stream_position")
GROUP = "instance, dataset, epoch"
GROUP_LEGEND = "{{dataset}} epoch {{epoch}} {{instance}}"

OPEN = Row(
    "Open streams",
    [
        Panel(
            "Open streams",
            "Open streams with their own series. A server lists at most 1000.",
            "short",
            {"streams": f"count({POSITION}) or vector(0)"},
            "stat",
            width=6,
        ),
        Panel(
            "Slowest stream",
            "Rows per second of the slowest open stream.",
            "rowsps",
            {"slowest": f"min({ROWS_RATE})"},
            "stat",
            width=6,
        ),
        Panel(
            "Least waiting for its trainer",
            "Smallest share of time that a stream waits for its client. Near 0, that client waits for data.",
            "percentunit",
            {"least": f"min({SEND_WAIT_RATE})"},
            "stat",
            width=6,
        ),
        Panel(
            "Oldest stream",
            "Time since the oldest open stream opened.",
            "s",
            {"oldest": f"max({stream('forebay_stream_open_seconds')})"},
            "stat",
            width=6,
        ),
        Panel(
            "Streams",
            "Every open stream: age, rate, position, and the share of time that it waits for its client.",
            "short",
            {
                "Open": each(stream("forebay_stream_open_seconds")),
                "Position": each(POSITION),
                "Rows per second": each(ROWS_RATE),
                "Bytes per second": each(BYTES_RATE),
                "Waits for trainer": each(SEND_WAIT_RATE),
            },
            "table",
            width=24,
            units={
                "Open": "s",
                "Rows per second": "rowsps",
                "Bytes per second": "Bps",
                "Waits for trainer": "percentunit",
            },
        ),
    ],
)

PACE = Row(
    "Pace",
    [
        Panel(
            f"Rows, the {LINES} slowest",
            f"Rows per second of the {LINES} slowest streams.",
            "rowsps",
            lowest(ROWS_RATE),
        ),
        Panel(
            f"Bytes, the {LINES} fastest",
            f"Arrow bytes per second of the {LINES} fastest streams.",
            "Bps",
            highest(BYTES_RATE),
        ),
        Panel(
            "Slowest to fastest",
            "Rows per second of an epoch's slowest stream divided by its fastest's. Ranks of a job should be near 100 "
            "%. Jobs that read the same epoch of a dataset are treated as one.",
            "percentunit",
            {GROUP_LEGEND: f"min by ({GROUP}) ({ROWS_RATE}) / clamp_min(max by ({GROUP}) ({ROWS_RATE}), {TINY})"},
            max=1,
        ),
        Panel(
            "Position",
            "Global position of each stream's next step in its epoch, in rows. A flat line is a paused stream.",
            "short",
            lowest(POSITION),
        ),
        Panel(
            "Distance between ranks",
            "Rows between the first and the last stream of an epoch. Jobs that read the same epoch of a dataset are "
            "treated as one.",
            "short",
            {GROUP_LEGEND: f"max by ({GROUP}) ({POSITION}) - min by ({GROUP}) ({POSITION})"},
        ),
        Panel(
            f"Age, the {LINES} oldest",
            "Time since each stream opened.",
            "s",
            highest(stream("forebay_stream_open_seconds")),
        ),
    ],
)

WAITING = Row(
    "Bottleneck",
    [
        Panel(
            "Stages",
            "Seconds per second that the selected streams spend in each stage: fetch waits for storage; queue waits "
            "for a CPU thread; decode, transform and assemble compute; udf waits for Python functions; send_wait waits "
            "for the client.",
            "s",
            {"{{stage}}": f"sum by (stage) ({STAGE_RATE})"},
            stacked=True,
        ),
        Panel(
            "Share of each stage",
            "Each stage's share of that time.",
            "percentunit",
            {"{{stage}}": shares("forebay_stream_stage_seconds_total", "stage", *CHOSEN)},
            stacked=True,
            max=1,
        ),
        Panel(
            f"Waiting for trainers, the {LINES} least",
            "Share of time that a stream has a batch ready and waits for its client. Near 0, that client waits for "
            "data. It is counted when a batch is read: a client that pauses shows as 0, then as more than 1.",
            "percentunit",
            lowest(SEND_WAIT_RATE),
        ),
        Panel(
            f"Waiting for storage, the {LINES} most",
            "Seconds per second that a stream waits for storage.",
            "s",
            highest(stream_rate("forebay_stream_stage_seconds_total", 'stage="fetch"')),
        ),
        Panel(
            f"Waiting for CPU threads, the {LINES} most",
            "Seconds per second that a stream waits for a CPU thread, summed over its lanes. Fewer streams at once, or "
            "more cores, shorten it.",
            "s",
            highest(stream_rate("forebay_stream_stage_seconds_total", 'stage="queue"')),
        ),
        Panel(
            f"Computing, the {LINES} most",
            "Seconds per second of decode, transform and assemble per stream. Above 1, several threads work on it.",
            "s",
            {
                STREAM: f"topk({LINES}, sum by ({IDENTITY}) "
                f"({stream_rate('forebay_stream_stage_seconds_total', COMPUTES)}))"
            },
        ),
    ],
)


def streams() -> Json:
    """Return the streams dashboard."""
    chosen = 'job=~"$job", instance=~"$instance"'
    variables = [
        *instance_variables(),
        label_variable(
            "dataset", "Dataset", f"label_values(forebay_stream_position{{{chosen}}}, dataset)", all_value=".*"
        ),
        label_variable(
            "stream",
            "Stream",
            f'label_values(forebay_stream_position{{{chosen}, dataset=~"$dataset"}}, stream)',
            all_value=".*",
        ),
    ]
    return dashboard(
        uid="forebay-streams",
        title="Forebay streams",
        description="Rate, position and bottleneck of each open stream.",
        variables=variables,
        rows=[OPEN, PACE, WAITING],
        refresh="10s",
        since="15m",
    )
