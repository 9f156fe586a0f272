"""The cases of every op, in one table: numbers.py, scalers.py, indices.py and lists.py have an entry for each op.

The tests of server/tests/ops run them: results against an oracle, elements of lists, random chains, and shuffled rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from .cases import FILL, KINDS, NUMERIC, Drawn, OpCases, Scaler, Step, on_values
from .indices import INDICES
from .lists import LISTS
from .numbers import CHAINS, NUMBERS
from .scalers import SCALERS

__all__ = [
    "ELEMENT_CASES",
    "ELSEWHERE",
    "FILL",
    "INDEX_CASES",
    "INTEGER_CASES",
    "KINDS",
    "LEARNING_CASES",
    "LIST_CASES",
    "NUMBER_CASES",
    "NUMERIC",
    "OPS",
    "SHUFFLED_CASES",
    "Drawn",
    "OpCases",
    "Scaler",
    "Step",
    "on_values",
]

Case = TypeVar("Case")


def combined(tables: Iterable[Mapping[str, Case]]) -> dict[str, Case]:
    """One table of all; a name in two of them would lose a case."""
    found: dict[str, Case] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        assert not twice, f"two cases are named {twice}"
        found |= table
    return found


OPS: dict[str, OpCases] = combined([NUMBERS, SCALERS, INDICES, LISTS])

# Ops that need more than a column of values, and the file in server/tests that tests each of them.
ELSEWHERE = {
    "attention_mask": "text/test_tokens.py",
    "bytes": "ops/test_bytes.py",
    "count_encode": "ops/test_encodings.py",
    "decode_image": "images/test_pixels.py",
    "diff": "streams/test_history.py",
    "lag": "streams/test_history.py",
    "lookup": "ops/test_lookup.py",
    "rolling": "streams/test_history.py",
    "target_mean": "ops/test_encodings.py",
    "tokenize": "text/test_tokens.py",
    "udf": "udf/test_streams.py",
}

ALL = [*OPS.values(), CHAINS]
NUMBER_CASES = combined(op.numbers for op in ALL)
INTEGER_CASES = combined(op.integers for op in ALL)
INDEX_CASES = combined(op.indices for op in ALL)
LIST_CASES = combined(op.lists for op in ALL)
ELEMENT_CASES = combined(op.elements for op in ALL)
LEARNING_CASES = combined(op.learning for op in ALL)
SHUFFLED_CASES = [case for op in ALL for case in op.shuffled]
