"""Translates pipelines of scikit-learn to plans. Imports no scikit-learn."""

from .translate import from_sklearn

__all__ = ["from_sklearn"]
