r"""Vectorized Python functions that a server calls for the rows of its streams.

>>> import pyarrow as pa
>>> import pyarrow.compute as pc
>>> from forebay import udf
>>> @udf.function(arguments=[pa.string()], returns=pa.int32())
... def words(text):
...     return pc.count_substring_regex(text, r"\w+")

``python -m forebay.udf module:words --listen unix:/run/words.sock`` serves it to servers with the flag
``--udf words=unix:/run/words.sock``, whose plans use it as ``fb.cols("text").udf("words")``.
"""

from .declared import Function, ResultError, function

__all__ = ["Function", "ResultError", "function"]
