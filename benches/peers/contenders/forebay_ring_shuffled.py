"""Forebay with its Python package, through a ring of shared memory, shuffled in a new order each epoch."""

from __future__ import annotations

from forebay_client import ForebayClient
from protocol import serve

if __name__ == "__main__":
    serve(lambda job: ForebayClient(job, shuffle=True, ring=True), "pyarrow", "forebay")
