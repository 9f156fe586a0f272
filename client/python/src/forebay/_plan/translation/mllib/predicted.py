"""Columns that predictors add, which no plan computes."""

from __future__ import annotations

from dataclasses import dataclass

from forebay._plan.translation.symbols import Scalar, Vector


@dataclass(frozen=True)
class Predicted:
    """A column that a predictor adds, which no plan computes."""

    uid: str


Symbol = Scalar | Vector | Predicted
