"""Forebay with bare pyarrow.flight: without Forebay's Python package and without reading ahead."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as fl
import torch
from forebay_client import DATASET, SMALL, fitted_plan, start
from protocol import Batch, Data, Job, serve


class ForebayBare:
    """GetFlightInfo, DoGet, and the matrices of each chunk."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._plan = json.loads(fitted_plan(job).to_json())["plan"]
        self._server = start(job)

    def epoch(self, data: Data, number: int) -> Iterator[Batch]:
        """Yield tensors over the received memory."""
        request = {
            "dataset": DATASET if data == self._job.whole else SMALL,
            "plan": self._plan,
            "batch_size": self._job.batch_size,
            "epoch": number,
        }
        with fl.connect(self._server.url) as client:
            info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request)))
            stream = client.do_get(info.endpoints[0].ticket)
            for chunk in stream:
                arrays = (chunk.data.column(name).to_numpy_ndarray() for name in ("dense", "cats"))  # pyright: ignore[reportAttributeAccessIssue]
                # Not from_numpy, which warns about read-only memory.
                dense, cats = (torch.from_dlpack(pa.array(each.ravel())).view(each.shape) for each in arrays)
                yield dense, cats

    def close(self) -> None:
        """Stop the server."""
        self._server.stop()


if __name__ == "__main__":
    serve(ForebayBare, "pyarrow")
