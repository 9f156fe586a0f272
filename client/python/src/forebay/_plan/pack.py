"""Packing: documents concatenated and cut into sequences of a fixed length."""

from __future__ import annotations

from dataclasses import dataclass

from .arguments import INT64_MAX, INT64_MIN, whole_number
from .message import Json

LENGTH_MAX = 65_536


@dataclass(frozen=True)
class Pack:
    """How an output of lists is packed; see `output`.

    The documents of a row group, each the list of a row, are concatenated in file order, each followed by the
    `separator` if there is one, and cut into sequences of `length` tokens. A document that does not fit the rest of a
    sequence continues in the next one. The last sequence of a row group is filled with `padding`.
    """

    length: int
    """Tokens of a sequence."""
    separator: int | None = None
    """The token after each document, such as the tokenizer's end of text."""
    padding: int = 0
    """The token that fills the last sequence."""

    def __post_init__(self) -> None:
        length = whole_number("pack: length", self.length, least=1, most=LENGTH_MAX)
        object.__setattr__(self, "length", length)
        if self.separator is not None:
            separator = whole_number("pack: separator", self.separator, least=INT64_MIN, most=INT64_MAX)
            object.__setattr__(self, "separator", separator)
        padding = whole_number("pack: padding", self.padding, least=INT64_MIN, most=INT64_MAX)
        object.__setattr__(self, "padding", padding)

    def __repr__(self) -> str:
        separator = "" if self.separator is None else f", separator={self.separator}"
        padding = f", padding={self.padding}" if self.padding else ""
        return f"Pack({self.length}{separator}{padding})"

    def to_dict(self) -> Json:
        """Return the JSON of the server."""
        fields: Json = {"length": self.length}
        if self.separator is not None:
            fields["separator"] = self.separator
        if self.padding:
            fields["padding"] = self.padding
        return fields
