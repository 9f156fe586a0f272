"""Forebay with its Python package, shuffled in a new order each epoch, with the default window and lanes."""

from __future__ import annotations

from forebay_client import ForebayClient
from protocol import serve

if __name__ == "__main__":
    serve(lambda job: ForebayClient(job, shuffle=True), "pyarrow", "forebay")
