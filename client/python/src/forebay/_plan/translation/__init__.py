"""Plans from the pipelines of other libraries, one package each, and what these share."""

from .result import Translation

__all__ = ["Translation"]
