"""Forebay with its Python package, through a ring of shared memory, in file order."""

from __future__ import annotations

from forebay_client import ForebayClient
from protocol import serve

if __name__ == "__main__":
    serve(lambda job: ForebayClient(job, shuffle=False, ring=True), "pyarrow", "forebay")
