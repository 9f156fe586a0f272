"""A small load on a server and a real Prometheus, for tests of dashboards and rules."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq

from harness.daemon import poll
from harness.repository import ROOT
from harness.serving import fit, info

GRAFANA = ROOT / "grafana"
START_SECONDS = 20

SHORT_PLAN = {
    "outputs": [
        {"name": "dense", "parts": [{"columns": ["x"], "ops": [{"fill_null": {"stat": "MEAN"}}, {"standardize": {}}]}]},
        {"name": "id", "dtype": "INT64", "parts": [{"columns": ["id"]}]},
    ]
}
LONG_REQUEST: dict[str, Any] = {
    "dataset": "long",
    "batch_size": 500,
    "plan": {"outputs": [{"name": "text", "dtype": "AS_STORED", "parts": [{"columns": ["text"]}]}]},
}
EXCHANGE = {"plan": {"outputs": [{"name": "x", "parts": [{"columns": ["x"], "ops": [{"log1p": {}}]}]}]}}


def write_datasets(root: Path) -> dict[str, Path]:
    """`short`, which is read in a moment, and `long`: 200 MB on the wire, so that a slow reader's stream stays open."""
    ids = np.arange(200_000)
    texts = [f"{i} " * 512 for i in range(4)]
    text = pa.DictionaryArray.from_arrays((ids % 4).astype(np.int32), texts)
    tables = {"short": pa.table({"id": ids[:20_000], "x": np.sqrt(ids[:20_000])}), "long": pa.table({"text": text})}
    for name, table in tables.items():
        (root / name).mkdir()
        pq.write_table(table, root / name / "a.parquet", store_schema=False, row_group_size=10_000)
    return {name: root / name for name in tables}


class Load:
    """Clients that work until they are stopped: short streams, two ranks of a slow trainer, exchanges, fits."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []
        jobs: list[Callable[[fl.FlightClient], None]] = [self._short, self._exchange]
        jobs += [lambda client, rank=rank: self._slow(client, rank) for rank in (0, 1)]
        self._threads = [threading.Thread(target=self._repeat, args=(job,), daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all clients; what went wrong with one is raised."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)
        if self._errors:
            raise self._errors[0]

    def _repeat(self, job: Callable[[fl.FlightClient], None]) -> None:
        try:
            with fl.connect(self._url) as client:
                while not self._stopped.is_set():
                    job(client)
        except BaseException as error:
            self._errors.append(error)

    def _short(self, client: fl.FlightClient) -> None:
        plan_id = fit(client, "short", SHORT_PLAN)[-1]["result"]["plan_id"]
        found = info(client, {"dataset": "short", "plan_id": plan_id, "batch_size": 1000})
        client.do_get(found.endpoints[0].ticket).read_all()
        self._stopped.wait(0.1)

    def _slow(self, client: fl.FlightClient, rank: int) -> None:
        found = info(client, {**LONG_REQUEST, "world_size": 2})
        reader = client.do_get(found.endpoints[rank].ticket)
        for _ in reader:
            if self._stopped.wait(0.2):
                reader.cancel()
                return

    def _exchange(self, client: fl.FlightClient) -> None:
        batch = pa.RecordBatch.from_pydict({"x": np.arange(100.0)})
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(json.dumps(EXCHANGE)))
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            reader.read_chunk()
            writer.done_writing()
        self._stopped.wait(0.1)


class PrometheusProcess:
    """A Prometheus on a free loopback port, with the rules, that scrapes these addresses every second."""

    def __init__(self, program: str, folder: Path, targets: Sequence[str]) -> None:
        config: Mapping[str, Any] = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(GRAFANA / "prometheus/rules.yml")],
            "scrape_configs": [{"job_name": "forebay", "static_configs": [{"targets": list(targets)}]}],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command += ["--web.listen-address=127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.log: deque[str] = deque(maxlen=200)
        self.url = ""
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self._listening.wait(START_SECONDS)
        # It listens before it has read its own log, and answers nothing until then.
        if not (self.url and poll(self._is_ready, seconds=START_SECONDS)):
            self.stop()
            raise RuntimeError("Prometheus did not start:\n" + "".join(self.log))

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10) as answer:
                return answer.status == 200
        except urllib.error.HTTPError:
            return False

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if 'msg="Listening on"' in line and (address := re.search(r"address=(\S+)", line)):
                self.url = f"http://{address[1]}"
                self._listening.set()
        self._listening.set()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
