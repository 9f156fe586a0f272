"""Translates fitted pipelines of Spark MLlib to plans. Imports no pyspark."""

from .translate import from_mllib

__all__ = ["from_mllib"]
