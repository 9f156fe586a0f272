"""Declared functions: their types, their digest, and calls with checked results. No sockets and no processes."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

DIGEST_DIGITS = 32
# The version of what a digest covers.
_FORM = b"forebay udf 1\n"


class ResultError(Exception):
    """A function's result contradicts its declaration, or its arguments do not have the form that it requires."""


@dataclass(frozen=True)
class Function:
    """A vectorized function with its types; made by `function`. Calling it calls the function itself."""

    name: str
    body: Callable[..., object]
    arguments: tuple[tuple[str, pa.DataType], ...]
    """Name and type of each argument."""
    returns: pa.DataType
    numpy: bool
    version: str

    def __call__(self, *arguments: object) -> object:
        """Call the function without any check."""
        return self.body(*arguments)

    def digest(self) -> str:
        """Return what identifies the function in plans: a digest of its types, its version and its module's source."""
        source = inspect.getsourcefile(self.body)
        if source is None:
            raise ResultError(f"function {self.name}: its module has no source file, which its digest covers")
        digest = hashlib.sha256(_FORM)
        types = [str(kind) for _, kind in self.arguments]
        for part in (self.name, self.version, str(self.returns), str(self.numpy), *types):
            digest.update(len(part.encode()).to_bytes(8, "little") + part.encode())
        digest.update(Path(source).read_bytes())
        return digest.hexdigest()[:DIGEST_DIGITS]

    def schema(self) -> pa.Schema:
        """Return the arguments and then the result, as the fields of a schema."""
        fields = [pa.field(name, kind) for name, kind in self.arguments]
        return pa.schema([*fields, pa.field("result", self.returns)])

    def apply(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Return the result for a batch of the arguments; raise `ResultError` if it is not as declared."""
        arrays = cast("list[pa.Array[Any]]", cast(Any, batch).columns)
        columns = [self._argument(name, array) for (name, _), array in zip(self.arguments, arrays, strict=True)]
        result = self.body(*columns)
        values = self._array(result)
        if len(values) != batch.num_rows:
            raise ResultError(f"it returned {len(values)} values for {batch.num_rows} rows")
        if not values.type.equals(self.returns):
            raise ResultError(
                f"it returned {values.type}, but declares {self.returns}: cast the result, or declare its type"
            )
        return values

    def _argument(self, name: str, column: pa.Array[Any]) -> pa.Array[Any] | np.ndarray[Any, Any]:
        if not self.numpy:
            return column
        if column.null_count:
            raise ResultError(
                f"argument {name} has {column.null_count} null(s), which NumPy arrays do not hold: "
                "fill them in a derived column (coalesce), or declare the function without numpy=True"
            )
        if isinstance(column, pa.FixedSizeListArray):
            lists = cast(Any, column)
            values = lists.flatten().to_numpy(zero_copy_only=False)
            return cast("np.ndarray[Any, Any]", values.reshape(len(lists), int(lists.type.list_size)))
        return column.to_numpy(zero_copy_only=False)

    def _array(self, result: object) -> pa.Array[Any]:
        if isinstance(result, pa.ChunkedArray):
            chunked = cast("pa.ChunkedArray[Any]", result)
            chunks = chunked.chunks or [pa.array([], chunked.type)]
            return cast("pa.Array[Any]", cast(Any, pa).concat_arrays(chunks))
        if isinstance(result, pa.Array):
            return cast("pa.Array[Any]", result)
        if not isinstance(result, np.ndarray):
            kind = type(result).__name__
            raise ResultError(f"it returned {kind}: return a pyarrow.Array or a NumPy array")
        values = cast("np.ndarray[Any, Any]", result)
        if values.ndim == 1:
            return pa.array(values)
        returns = cast(Any, self.returns)
        if values.ndim == 2 and isinstance(self.returns, pa.FixedSizeListType) and values.shape[1] == returns.list_size:
            flat = cast("pa.Array[Any]", pa.array(np.ascontiguousarray(values).ravel()))
            if flat.type.equals(returns.value_type):
                return cast("pa.Array[Any]", cast(Any, pa.FixedSizeListArray).from_arrays(flat, type=returns))
        raise ResultError(
            f"it returned a NumPy array of {values.dtype} with the shape {values.shape}, but declares {returns}"
        )


def function(
    *, arguments: Sequence[pa.DataType], returns: pa.DataType, numpy: bool = False, version: str = ""
) -> Callable[[Callable[..., object]], Function]:
    """Declare a function of columns that returns a column with one value per row.

    It receives one array per argument: a ``pyarrow.Array``, or with `numpy` a NumPy array (2-D for fixed-size lists).
    It must compute each row from that row alone, always with the same result, because the server chooses how many
    rows a call has. `version` is part of its digest; change it when something outside of its module changes results.
    """
    kinds = tuple(arguments)
    if not kinds:
        raise TypeError("function: arguments is empty; declare the type of each argument")
    for kind in (*kinds, returns):
        if not isinstance(cast(object, kind), pa.DataType):
            raise TypeError(f"function: {kind!r} is not a type of pyarrow, such as pyarrow.float32()")

    def declare(body: Callable[..., object]) -> Function:
        names = tuple(inspect.signature(body).parameters)
        if len(names) != len(kinds):
            raise TypeError(
                f"function {body.__name__} has {len(names)} argument(s), but {len(kinds)} type(s) are declared"
            )
        return Function(body.__name__, body, tuple(zip(names, kinds, strict=True)), returns, numpy, version)

    return declare
