"""Translates fitted pipelines of Spark MLlib to plans. Imports no pyspark."""

from .stage import UntranslatableStage
from .translate import Translation, from_mllib

__all__ = ["Translation", "UntranslatableStage", "from_mllib"]
