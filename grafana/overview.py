"""The overview dashboard: throughput, bottlenecks and errors of all replicas."""

from __future__ import annotations

from panels import Json, Panel, Row, dashboard, datasource_variable, label_variable
from promql import INSTANCE, SERVER_CODES, TINY, by, each, quantiles, rate, ratio, series, shares, total
from resources import CACHE, CPU, MEMORY, PROCESS, STATE, STORAGE

SEND_WAIT = 'stage="send_wait"'
FAILED = 'status="failed"'
SERVER_FAULT = f'code=~"{SERVER_CODES}"'
ALERTS = series("ALERTS", 'alertname=~"Forebay.+"', 'alertstate="firing"')


def streams_in_send_wait() -> str:
    """Return the share of time that open streams wait for their clients, assuming at least one stream."""
    streams = f"avg_over_time({series('forebay_streams_active')}[$__rate_interval])"
    waited = total(rate("forebay_stage_seconds_total", SEND_WAIT), by="instance")
    return f"{waited} / clamp_min({total(streams, by='instance')}, 1)"


GLANCE = Row(
    "At a glance",
    [
        Panel(
            "Replicas up",
            "Replicas whose metrics Prometheus can scrape.",
            "short",
            {"up": total(series("up"))},
            "stat",
            width=3,
        ),
        Panel(
            "Replicas ready",
            "Replicas that accept new streams. A draining replica is up but not ready.",
            "short",
            {"ready": total(series("forebay_ready"))},
            "stat",
            width=3,
        ),
        Panel(
            "Open streams",
            "Streams open now on all replicas.",
            "short",
            {"streams": total(series("forebay_streams_active"))},
            "stat",
            width=3,
        ),
        Panel(
            "Rows per second",
            "Rows sent per second by all replicas.",
            "rowsps",
            {"rows": total(rate("forebay_rows_sent_total"))},
            "stat",
            width=3,
        ),
        Panel(
            "Bytes per second",
            "Arrow bytes sent per second by all replicas.",
            "Bps",
            {"bytes": total(rate("forebay_sent_bytes_total"))},
            "stat",
            width=3,
        ),
        Panel(
            "Failed calls",
            "Share of calls that ended with a server-side error. 0 without calls.",
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
            "Share of the memory budget that streams hold, on the fullest replica. At 100 % new streams are refused.",
            "percentunit",
            {"reserved": f"max({series('forebay_memory_reserved_bytes')} / {series('forebay_memory_limit_bytes')})"},
            "stat",
            width=3,
            warn=(0.8, 0.9),
        ),
        Panel(
            "Alerts firing",
            "Alerts of prometheus/rules.yml that are firing.",
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
        Panel("Rows", "Rows sent per second.", "rowsps", each(rate("forebay_rows_sent_total"))),
        Panel(
            "Bytes",
            "Arrow bytes sent per second, including headers.",
            "Bps",
            each(rate("forebay_sent_bytes_total")),
        ),
        Panel("Batches", "Batches sent per second.", "cps", each(rate("forebay_batches_sent_total"))),
        Panel("Open streams", "Open streams by replica.", "short", each(series("forebay_streams_active"))),
        Panel(
            "Paused streams",
            "Open streams whose clients take no batch, and which have released their memory until they do.",
            "short",
            each(series("forebay_streams_paused")),
        ),
        Panel(
            "Pauses",
            "Pauses of streams per second: because the client took no batch, or another client needed the memory.",
            "cps",
            by("reason", rate("forebay_stream_pauses_total")),
        ),
        Panel(
            "Ended streams",
            "Ended streams per second, by status: complete, cancelled by the client, or failed with an error.",
            "cps",
            by("status", rate("forebay_streams_total")),
        ),
        Panel("Connections", "Open client connections.", "short", each(series("forebay_connections_active"))),
    ],
)

WAITING = Row(
    "Bottleneck",
    [
        Panel(
            "Stages",
            "Seconds per second that all streams together spend in each stage: fetch waits for storage; queue waits "
            "for CPU threads; decode, transform and assemble compute; udf waits for Python functions; "
            "send_wait waits for clients.",
            "s",
            by("stage", rate("forebay_stage_seconds_total")),
            stacked=True,
        ),
        Panel(
            "Share of each stage",
            "Each stage's share of that time. Mostly fetch: storage is the bottleneck. Mostly queue, decode, transform "
            "and assemble: the CPU is. Mostly send_wait: the clients are, which is the desired state.",
            "percentunit",
            {"{{stage}}": shares("forebay_stage_seconds_total", "stage")},
            stacked=True,
            max=1,
        ),
        Panel(
            "Streams waiting for trainers",
            "Share of time that open streams have a batch ready and wait for their clients. Near 0, the clients wait "
            "for data. It is counted when a batch is read, so it can briefly exceed 1.",
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
            "Time from a DoGet until its first batch is sent. Empty while no stream opens.",
            "s",
            quantiles("forebay_first_batch_seconds"),
            width=12,
        ),
        Panel(
            "Batch",
            "Time between batches of a stream, excluding waits for the client. Empty while no batch is sent.",
            "s",
            quantiles("forebay_batch_seconds"),
            width=12,
        ),
    ],
)

ERRORS = Row(
    "Errors",
    [
        Panel("Calls", "Calls per second, by method.", "reqps", by("call", rate("forebay_requests_total"))),
        Panel(
            "Calls not OK",
            "Calls per second that did not return OK. INVALID_ARGUMENT and NOT_FOUND are client errors, "
            "RESOURCE_EXHAUSTED means that a limit was reached, and INTERNAL is a bug.",
            "reqps",
            by("code", rate("forebay_requests_total", 'code!="OK"')),
        ),
        Panel(
            "Failed calls",
            f"Share of calls that ended with a server-side error: {SERVER_CODES.replace('|', ', ')}.",
            "percentunit",
            {
                INSTANCE: ratio(
                    rate("forebay_requests_total", SERVER_FAULT), rate("forebay_requests_total"), by="instance"
                )
            },
        ),
        Panel(
            "Failed streams",
            "Share of opened streams that ended with an error.",
            "percentunit",
            {INSTANCE: ratio(rate("forebay_streams_total", FAILED), rate("forebay_streams_total"), by="instance")},
        ),
        Panel(
            "Refusals",
            "Calls per second that ended with an error of the server, by reason and principal. Callers without valid "
            "credentials are unknown, and anonymous where none are required.",
            "reqps",
            {
                "{{reason}} {{principal}}": total(rate("forebay_refusals_total"), by="reason, principal"),
            },
        ),
        Panel(
            "Reloads",
            "Reloads per second of the configuration, principals and certificates, by status. After a failed one the "
            "previous content stays in effect, and the server's log names the mistake.",
            "cps",
            by("status", rate("forebay_config_reloads_total")),
        ),
        Panel(
            "Refused streams",
            "Streams refused per second because of a limit, usually the memory budget.",
            "reqps",
            each(rate("forebay_requests_total", 'call="DoGet"', 'code="RESOURCE_EXHAUSTED"')),
        ),
        Panel(
            "Images not decoded",
            "Images per second that could not be decoded, by what the plan does about them: fail, null or skip.",
            "cps",
            by("action", rate("forebay_image_errors_total")),
        ),
    ],
)

EXCHANGES = Row(
    "Exchanges and fits",
    [
        Panel(
            "Open",
            "Open exchanges (DoExchange), running fits, running SQL of views, and calls of Python functions.",
            "short",
            {
                "exchanges {{instance}}": total(series("forebay_exchanges_active"), by="instance"),
                "fits {{instance}}": total(series("forebay_fits_active"), by="instance"),
                "views {{instance}}": total(series("forebay_view_runs_active"), by="instance"),
                "views, average {{instance}}": total(rate("forebay_view_run_seconds_sum"), by="instance"),
                "functions, average {{instance}}": total(rate("forebay_udf_seconds_sum"), by="instance"),
            },
        ),
        Panel(
            "Ended exchanges",
            "Ended exchanges and runs of views per second, by status: complete, cancelled by the client, or failed.",
            "cps",
            by("status", rate("forebay_exchanges_total"))
            | {"views {{status}}": total(rate("forebay_view_runs_total"), by="status")},
        ),
        Panel(
            "Python functions",
            "Calls of Python functions per second, by status: ok, or why a call failed.",
            "cps",
            by("status", rate("forebay_udf_calls_total")),
        ),
        Panel(
            "Exchange latency",
            "Time from the complete arrival of a batch to its answer, in the server. Empty without exchanges.",
            "s",
            quantiles("forebay_exchange_seconds"),
        ),
        Panel(
            "Exchanged batches",
            "Batches answered per second by exchanges.",
            "cps",
            each(rate("forebay_exchange_batches_total")),
            width=12,
        ),
        Panel(
            "Exchanged rows",
            "Rows per second in those answers.",
            "rowsps",
            each(rate("forebay_exchange_rows_total")),
            width=12,
        ),
    ],
)

ROWS = [GLANCE, THROUGHPUT, WAITING, LATENCY, ERRORS, STORAGE, MEMORY, CACHE, CPU, EXCHANGES, STATE, PROCESS]


def instance_variables() -> list[Json]:
    """Return the variables of every dashboard: data source, job and instance."""
    return [
        datasource_variable(),
        label_variable("job", "Job", "label_values(forebay_build_info, job)"),
        label_variable("instance", "Instance", 'label_values(forebay_build_info{job=~"$job"}, instance)'),
    ]


def overview() -> Json:
    """Return the overview dashboard."""
    return dashboard(
        uid="forebay-overview",
        title="Forebay overview",
        description="Throughput, bottlenecks and errors of all Forebay replicas.",
        variables=instance_variables(),
        rows=ROWS,
        refresh="10s",
        since="30m",
    )
