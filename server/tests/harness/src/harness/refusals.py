"""Calls that a server refuses, and what it says."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from forebay.errors import ForebayError, translate


def refusal(call: Callable[[], object]) -> ForebayError:
    """The error of a call, which must fail."""
    with pytest.raises((pa.ArrowException, fl.FlightError)) as caught:
        call()
    return translate(caught.value)


def check(error: ForebayError, code: str, *words: str) -> None:
    assert error.code == code, error
    for word in words:
        assert word in str(error)
