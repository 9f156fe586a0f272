"""The overview: what the replicas of a service do together, what they wait for, and what goes wrong."""

from __future__ import annotations

from panels import Json, Panel, Row, dashboard, datasource_variable, label_variable
from promql import INSTANCE, SERVER_CODES, TINY, by, each, quantiles, rate, ratio, series, shares, total
from resources import CPU, MEMORY, PROCESS, STORAGE

SEND_WAIT = 'stage="send_wait"'
FAILED = 'status="failed"'
SERVER_FAULT = f'code=~"{SERVER_CODES}"'
ALERTS = series("ALERTS", 'alertname=~"Forebay.+"', 'alertstate="firing"')


def streams_in_send_wait() -> str:
    """Give the part of an open stream's time in which it waits for its client; below one stream counts as one."""
    streams = f"avg_over_time({series('forebay_streams_active')}[$__rate_interval])"
    waited = total(rate("forebay_stage_seconds_total", SEND_WAIT), by="instance")
    return f"{waited} / clamp_min({total(streams, by='instance')}, 1)"


GLANCE = Row(
    "At a glance",
    [
        Panel(
            "Replicas up",
            "Replicas that answer when Prometheus reads their metrics.",
            "short",
            {"up": total(series("up"))},
            "stat",
            width=3,
        ),
        Panel(
            "Replicas ready",
            "Replicas that take new streams. One that drains is up and not ready.",
            "short",
            {"ready": total(series("forebay_ready"))},
            "stat",
            width=3,
        ),
        Panel(
            "Open streams",
            "Streams that are open now, on all replicas.",
            "short",
            {"streams": total(series("forebay_streams_active"))},
            "stat",
            width=3,
        ),
        Panel(
            "Rows per second",
            "Rows handed to the wire per second, on all replicas.",
            "rowsps",
            {"rows": total(rate("forebay_rows_sent_total"))},
            "stat",
            width=3,
        ),
        Panel(
            "Bytes per second",
            "Arrow bytes handed to the wire per second, on all replicas.",
            "Bps",
            {"bytes": total(rate("forebay_sent_bytes_total"))},
            "stat",
            width=3,
        ),
        Panel(
            "Failed calls",
            "Part of all calls that were answered with an error of the server's side. 0 where there are no calls.",
            "percentunit",
            {
                "failed": f"({total(rate('forebay_requests_total', SERVER_FAULT))} or vector(0)) / "
                f"clamp_min({total(rate('forebay_requests_total'))}, {TINY})"
            },
            "stat",
            width=3,
            warn=(0.001, 0.01),
        ),
        Panel(
            "Memory reserved",
            "The fullest replica's part of its memory budget that streams hold. At 100 % new streams are refused.",
            "percentunit",
            {"reserved": f"max({series('forebay_memory_reserved_bytes')} / {series('forebay_memory_limit_bytes')})"},
            "stat",
            width=3,
            warn=(0.8, 0.9),
        ),
        Panel(
            "Alerts firing",
            "Alerts of prometheus/rules.yml that fire now.",
            "short",
            {"alerts": f"count({ALERTS}) or vector(0)"},
            "stat",
            width=3,
            warn=(1, 3),
        ),
    ],
)

THROUGHPUT = Row(
    "Throughput",
    [
        Panel("Rows", "Rows handed to the wire per second.", "rowsps", each(rate("forebay_rows_sent_total"))),
        Panel(
            "Bytes",
            "Arrow bytes handed to the wire per second, headers included.",
            "Bps",
            each(rate("forebay_sent_bytes_total")),
        ),
        Panel("Batches", "Batches handed to the wire per second.", "cps", each(rate("forebay_batches_sent_total"))),
        Panel("Open streams", "Streams that are open.", "short", each(series("forebay_streams_active"))),
        Panel(
            "Ended streams",
            "Streams that ended per second, by how: complete; cancelled by the client; failed with an error.",
            "cps",
            by("status", rate("forebay_streams_total")),
        ),
        Panel("Connections", "Client connections that are open.", "short", each(series("forebay_connections_active"))),
    ],
)

WAITING = Row(
    "Who waits for what",
    [
        Panel(
            "Stages",
            "Seconds that all streams together spend per second in each stage. fetch waits for storage; decode, "
            "transform and assemble compute; send_wait waits for the clients.",
            "s",
            by("stage", rate("forebay_stage_seconds_total")),
            stacked=True,
        ),
        Panel(
            "Share of each stage",
            "The same as parts of the whole. Much fetch: storage is slow. Much decode, transform and assemble: the CPU "
            "is the limit. Much send_wait: the clients are the slower side, as they should be.",
            "percentunit",
            {"{{stage}}": shares("forebay_stage_seconds_total", "stage")},
            stacked=True,
            max=1,
        ),
        Panel(
            "Streams waiting for trainers",
            "Part of its time in which an open stream has a batch ready and waits for its client to take it. Near 0 "
            "the clients wait for data instead. It counts when a batch is taken, so it can exceed 1 for a moment.",
            "percentunit",
            {INSTANCE: streams_in_send_wait()},
        ),
    ],
)

LATENCY = Row(
    "Latency",
    [
        Panel(
            "First batch",
            "Time from a DoGet to its first batch on the wire: what opening a stream costs. Empty while none opens.",
            "s",
            quantiles("forebay_first_batch_seconds"),
            width=12,
        ),
        Panel(
            "Batch",
            "Time from one batch of a stream to its next, waiting for the client left out. Empty while none is sent.",
            "s",
            quantiles("forebay_batch_seconds"),
            width=12,
        ),
    ],
)

ERRORS = Row(
    "Errors",
    [
        Panel("Calls", "Calls answered per second, by method.", "reqps", by("call", rate("forebay_requests_total"))),
        Panel(
            "Calls not OK",
            "Calls per second that were answered with another code than OK. INVALID_ARGUMENT and NOT_FOUND are the "
            "caller's, RESOURCE_EXHAUSTED is a lack of memory, INTERNAL a bug.",
            "reqps",
            by("code", rate("forebay_requests_total", 'code!="OK"')),
        ),
        Panel(
            "Failed calls",
            f"Part of the calls answered with a code of the server's side: {SERVER_CODES.replace('|', ', ')}.",
            "percentunit",
            {
                INSTANCE: ratio(
                    rate("forebay_requests_total", SERVER_FAULT), rate("forebay_requests_total"), by="instance"
                )
            },
        ),
        Panel(
            "Failed streams",
            "Part of the streams that ended with an error after they had opened.",
            "percentunit",
            {INSTANCE: ratio(rate("forebay_streams_total", FAILED), rate("forebay_streams_total"), by="instance")},
        ),
        Panel(
            "Refused streams",
            "Streams refused per second since a limit leaves no room for them, most often that of memory.",
            "reqps",
            each(rate("forebay_requests_total", 'call="DoGet"', 'code="RESOURCE_EXHAUSTED"')),
        ),
    ],
)

EXCHANGES = Row(
    "Exchanges and fits",
    [
        Panel(
            "Open",
            "Exchanges (DoExchange) that are open and fits that run.",
            "short",
            {
                "exchanges {{instance}}": total(series("forebay_exchanges_active"), by="instance"),
                "fits {{instance}}": total(series("forebay_fits_active"), by="instance"),
            },
        ),
        Panel(
            "Ended exchanges",
            "Exchanges that ended per second, by how: complete; cancelled by the client; failed with an error.",
            "cps",
            by("status", rate("forebay_exchanges_total")),
        ),
        Panel(
            "Exchange latency",
            "Time from a whole batch's arrival to its answer, both in the server. Empty while there are none.",
            "s",
            quantiles("forebay_exchange_seconds"),
        ),
        Panel(
            "Exchanged batches",
            "Batches that exchanges answer per second.",
            "cps",
            each(rate("forebay_exchange_batches_total")),
            width=12,
        ),
        Panel(
            "Exchanged rows",
            "Rows in those answers per second.",
            "rowsps",
            each(rate("forebay_exchange_rows_total")),
            width=12,
        ),
    ],
)

ROWS = [GLANCE, THROUGHPUT, WAITING, LATENCY, ERRORS, STORAGE, MEMORY, CPU, EXCHANGES, PROCESS]


def instance_variables() -> list[Json]:
    """Let data source, job and instance be chosen, as on every dashboard."""
    return [
        datasource_variable(),
        label_variable("job", "Job", "label_values(forebay_build_info, job)"),
        label_variable("instance", "Instance", 'label_values(forebay_build_info{job=~"$job"}, instance)'),
    ]


def overview() -> Json:
    """Make the overview."""
    return dashboard(
        uid="forebay-overview",
        title="Forebay overview",
        description="What the replicas of Forebay do, what they wait for, and what goes wrong.",
        variables=instance_variables(),
        rows=ROWS,
        refresh="10s",
        since="30m",
    )
