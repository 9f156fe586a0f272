"""Registers every rule of the grammar: each module of rules does so on import."""

import filter_rules_any
import filter_rules_bool
import filter_rules_number
import filter_rules_other

__all__ = ["filter_rules_any", "filter_rules_bool", "filter_rules_number", "filter_rules_other"]
