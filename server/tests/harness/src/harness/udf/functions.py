"""Functions that the tests serve: good ones, and one for each fault."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay import udf

Array = Any
FLOAT = pa.float32()


@udf.function(arguments=[pa.string()], returns=pa.int64())
def length(text: Array) -> Array:
    return pc.cast(pc.utf8_length(text), pa.int64())


@udf.function(arguments=[pa.string()], returns=pa.string())
def slug(text: Array) -> Array:
    return pc.replace_substring_regex(pc.utf8_lower(text), "[^a-z0-9]+", "-")


@udf.function(arguments=[pa.float64(), pa.float64()], returns=FLOAT, numpy=True)
def ratio(part: np.ndarray[Any, Any], whole: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (part / whole).astype(np.float32)


@udf.function(arguments=[pa.float64()], returns=pa.list_(FLOAT, 3), numpy=True)
def powers(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.stack([x, x**2, x**3], axis=1).astype(np.float32)


@udf.function(arguments=[pa.string()], returns=pa.list_(pa.int64()))
def letters(text: Array) -> Array:
    return pa.array([[ord(letter) for letter in value] for value in text.to_pylist()], pa.list_(pa.int64()))


@udf.function(arguments=[pa.int64()], returns=pa.int64())
def process(row: Array) -> Array:
    """The process that computes a row: shows which ones take part."""
    return pa.array([os.getpid()] * len(row), pa.int64())


@udf.function(arguments=[pa.string()], returns=pa.int64())
def raises(text: Array) -> Array:
    raise ValueError(f"\x1b[31mno such text: {text[0]}")


@udf.function(arguments=[pa.string()], returns=pa.int64())
def exits(text: Array) -> Array:
    sys.exit(3)


@udf.function(arguments=[pa.string()], returns=pa.int64())
def dies(text: Array) -> Array:
    os._exit(9)


@udf.function(arguments=[pa.string()], returns=pa.int64())
def faults(text: Array) -> Array:
    ctypes.string_at(0)
    return text


@udf.function(arguments=[pa.string()], returns=pa.int64())
def sleeps(text: Array) -> Array:
    while True:
        time.sleep(0.1)


@udf.function(arguments=[pa.string()], returns=pa.int64())
def short(text: Array) -> Array:
    return pa.array([1] * (len(text) - 1), pa.int64())


@udf.function(arguments=[pa.string()], returns=pa.int64())
def other_type(text: Array) -> Array:
    return pc.cast(pc.utf8_length(text), pa.float64())


@udf.function(arguments=[pa.string()], returns=pa.int64())
def no_array(text: Array) -> Any:
    return text.to_pylist()


@udf.function(arguments=[pa.string()], returns=pa.int64())
def nulls(text: Array) -> Array:
    return pa.array([None if "7," in value.as_py() else 1 for value in text], pa.int64())


@udf.function(arguments=[pa.string()], returns=pa.int64())
def forks(text: Array) -> Array:
    os.fork()
    return pc.cast(pc.utf8_length(text), pa.int64())


@udf.function(arguments=[pa.string()], returns=pa.int64())
def forks_unseen(text: Array) -> Array:
    ctypes.CDLL(None).fork()
    return pc.cast(pc.utf8_length(text), pa.int64())


@udf.function(arguments=[pa.int64()], returns=pa.int64(), numpy=True)
def dense(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return row


@udf.function(arguments=[pa.int64()], returns=pa.large_string())
def long_text(row: Array) -> Array:
    return pa.array(["x" * 100_000] * len(row), pa.large_string())
