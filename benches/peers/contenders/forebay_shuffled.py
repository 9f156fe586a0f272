"""Forebay through its client, shuffled: another order each epoch, over the server's own window and lanes."""

from __future__ import annotations

from forebay_client import ForebayClient
from protocol import serve

if __name__ == "__main__":
    serve(lambda job: ForebayClient(job, shuffle=True), "pyarrow", "forebay")
