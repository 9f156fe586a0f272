"""Compares the batches of a plan with Parquet files that another job wrote."""

from .comparing import compare
from .report import ColumnComparison, Comparison, ValueDifference

__all__ = ["ColumnComparison", "Comparison", "ValueDifference", "compare"]
