"""All attacks at once: a principal beside them gets every row of its epochs and every answer, within the memory limit.

How fast it gets them is measured by `benches/service/run.py --only attacks`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.flight as fl

from harness.attacks import GOOD_TOKEN, MATRIX, Attacks, options, request, write_data
from harness.daemon import LOOPBACK, Daemon, poll
from harness.damaged_files import resident_bytes_max

MEMORY_LIMIT_BYTES = 256 << 20
# What the server has besides what it reserves: its code, connections, and buffers of the transport.
CONSTANT_BYTES = 256 << 20
ROWS = 100_000


def epoch(client: fl.FlightClient, number: int) -> np.ndarray[Any, Any]:
    wanted = request("numbers", MATRIX, shuffle=True, lanes=2, epoch=number, batch_size=2048)
    info = client.get_flight_info(wanted, options(GOOD_TOKEN))
    batches = client.do_get(info.endpoints[0].ticket, options(GOOD_TOKEN)).read_all()
    return batches["m"].combine_chunks().to_numpy_ndarray()


def test_a_principal_is_served_beside_every_attack(tmp_path: Path) -> None:
    datasets = write_data(tmp_path, ROWS)
    named = [word for name, path in datasets.items() for word in ("--dataset", f"{name}={path}")]
    daemon = Daemon(
        *LOOPBACK,
        *("--state", str(tmp_path / "state"), "--principals", str(tmp_path / "principals.toml")),
        *("--memory-limit-bytes", str(MEMORY_LIMIT_BYTES), *named),
    )
    try:
        with fl.connect(daemon.url) as client:
            before = [epoch(client, number) for number in range(3)]
            assert [each.shape for each in before] == [(ROWS, 10)] * 3
            assert not np.array_equal(before[0], before[1])
            with Attacks(daemon.url, daemon.metrics_url).running():
                for number in range(3):
                    assert np.array_equal(epoch(client, number), before[number])
                    described = fl.Action("describe", json.dumps({"dataset": "numbers"}).encode())
                    assert list(client.do_action(described, options(GOOD_TOKEN)))
                    assert daemon.get("/healthz")[0] == 200
            assert resident_bytes_max(daemon) < MEMORY_LIMIT_BYTES + CONSTANT_BYTES
        assert poll(lambda: "forebay_streams_active 0\n" in daemon.get("/metrics")[2], seconds=60)
    finally:
        daemon.stop()
