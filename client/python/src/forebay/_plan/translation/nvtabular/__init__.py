"""Translates saved workflows of NVTabular to plans. Imports no NVTabular, and runs nothing that a workflow names."""

from .translate import from_nvtabular

__all__ = ["from_nvtabular"]
