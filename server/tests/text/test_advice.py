"""The advice of an error for a column that is not text is one that the server accepts."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models

import forebay as fb
from harness.serving import Serve

COLUMNS: dict[str, Any] = {
    "number": [7],
    "flag": [True],
    "day": [date(2025, 6, 1)],
    "raw": pa.array([b"a"]),
    "chat": [[{"role": "user", "content": "a"}]],
    "words": [["a", "b"]],
    "turn": [{"content": "a"}],
}


@pytest.fixture
def client(serve: Serve, tmp_path: Path) -> fb.Client:
    pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    return fb.connect(serve({"t": tmp_path}).url)


@pytest.mark.parametrize("column", COLUMNS)
def test_following_the_advice_gives_tokens(client: fb.Client, column: str):
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    with pytest.raises(fb.InvalidRequest, match=f'column "{column}" is') as refused:
        client.stream("t", fb.Plan(outputs={"o": fb.cols(column).tokenize(tokenizer)}))
    advised = re.search(r"(?:CAST|arrow_cast|get_field)\(column\b.*?\)", str(refused.value))
    assert advised is not None
    expression = advised[0].replace("(column", f"({column}").replace("'name'", "'content'")
    if column in ("chat", "words"):
        # Only a struct has fields: the advice for a list is to store the text.
        assert "store the text in a separate column" in str(refused.value)
        assert "CAST" not in str(refused.value)
        return
    plan = fb.Plan(derive={"text": expression}, outputs={"o": fb.cols("text").tokenize(tokenizer)})
    assert [batch.data.column("o").to_pylist() for batch in client.stream("t", plan)] == [[[0]]]
