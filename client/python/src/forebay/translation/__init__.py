"""What translations from other libraries share: chains of columns, derived columns, and the result."""

from .result import Translation, UntranslatableStage

__all__ = ["Translation", "UntranslatableStage"]
