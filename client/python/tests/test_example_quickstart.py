"""The notebook of the quick start runs from top to bottom in a real kernel, and is stored without outputs."""

from __future__ import annotations

import importlib.util
import json

import pytest

from harness.examples import EXAMPLES
from harness.repository import package_environment
from harness.serving import server_binary

NOTEBOOK = EXAMPLES / "quickstart.ipynb"
SECONDS_MAX = 600


def test_the_notebook_is_stored_without_outputs():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="make test-frameworks installs nbclient")
# jupyter_client 8 uses what pyzmq and traitlets have deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch):
    import nbclient
    import nbformat

    for name, value in {**package_environment(), "FOREBAY_SERVER_BIN": server_binary()}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=SECONDS_MAX, kernel_name="python3").execute()
    printed = "".join(
        str(output.get("text") or output.get("data", {}).get("text/plain", ""))
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
    for words in ("epoch 0: ", "bound by ", "rows in two parts, each once", "for the more frequent answer", "dense"):
        assert words in printed
