"""Plans from the pipelines of other libraries, one package each, and what these share."""

from .result import Translation, UntranslatableStage

__all__ = ["Translation", "UntranslatableStage"]
