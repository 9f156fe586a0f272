"""FAILED_PRECONDITION is several refusals: each has its own exception, whatever columns and files are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from forebay.errors import translate
from serving import Server

Serve = Callable[..., Server]

PREFIX = "gRPC returned precondition failed error, with message: "
NOT_FITTED = (
    'plan.outputs[0].parts[0].ops[1]: standardize must first learn from the data: run the action "fit" with this plan '
    "(forebay fit, or .fit() in Python) and send the plan_id or the plan that it returns"
)


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        (NOT_FITTED, fb.NotFitted),
        ('dataset "a": the schema of "b" differs from that of "c": column "fit" is Int64, not Utf8', fb.SchemaDrift),
        (
            f'dataset "a": the schema of "b" differs from that of "c": column "{NOT_FITTED}" stands where',
            fb.SchemaDrift,
        ),
        (
            'schema drift: column "fit" is Utf8 here, and was Int64 in the data that the plan was fitted to; convert '
            "it to that, or fit the plan to data like this",
            fb.SchemaDrift,
        ),
        ('plan: dictionaries of column "a" do not fit one key type', fb.FailedPrecondition),
        ('dataset "fit": no file fits "*.parquet"', fb.FailedPrecondition),
        ('dataset "schema drift: column" has no rows: its 1 file(s) are empty tables', fb.FailedPrecondition),
        (f'dataset "d": {NOT_FITTED}', fb.FailedPrecondition),
    ],
)
def test_only_the_servers_own_sentence_names_the_refusal(sentence: str, kind: type[Exception]):
    error = translate(pa.ArrowInvalid(PREFIX + sentence))
    assert type(error) is kind
    assert str(error) == sentence
    assert isinstance(error, fb.FailedPrecondition)
    assert error.code == "FAILED_PRECONDITION"


def write(folder: Path, **files: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    for name, columns in files.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def test_a_server_names_each_refusal(serve: Serve, tmp_path: Path):
    good = write(tmp_path / "good", a={"fit": np.arange(9.0)})
    drifted = write(tmp_path / "drifted", a={"fit": np.arange(9.0)}, b={"fit": [str(n) for n in range(9)]})
    renamed = write(tmp_path / "renamed", a={"x": np.arange(9.0)}, b={"fit": np.arange(9.0)})
    empty = write(tmp_path / "empty", fit={"fit": np.arange(0.0)})
    server = serve({"good": good, "drifted": drifted, "renamed": renamed, "fit": empty})
    plan = fb.Plan(outputs={"fit": fb.cols("fit").standardize()})
    ready = fb.Plan(outputs={"fit": fb.cols("fit")})
    with fb.connect(server.url) as client:
        with client.exchange(plan) as unfitted, pytest.raises(fb.NotFitted):
            unfitted({"fit": [1.0]})
        for dataset in ("drifted", "renamed"):
            with pytest.raises(fb.SchemaDrift, match='"fit"'):
                client.stream(dataset, ready)
        with pytest.raises(fb.FailedPrecondition, match="no rows") as raised:
            client.stream("fit", ready)
        assert type(raised.value) is fb.FailedPrecondition
        fitted = client.fit("good", plan, progress=False)
        with client.exchange(fitted.plan_id) as exchange, pytest.raises(fb.SchemaDrift, match="fitted to"):
            exchange({"fit": ["text"]})
