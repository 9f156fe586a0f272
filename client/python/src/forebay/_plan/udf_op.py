"""The op that calls a Python function of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .op import Json, Op


@dataclass(frozen=True)
class Udf(Op):
    """The result of a function of the part's column and these."""

    name: ClassVar[str] = "udf"
    function: str = ""
    columns: tuple[str, ...] = ()
    digest: str = ""

    def to_dict(self) -> Json:
        """Return the name, and what is set of the rest."""
        fields: Json = {"name": self.function}
        if self.columns:
            fields["columns"] = list(self.columns)
        if self.digest:
            fields["digest"] = self.digest
        return fields
