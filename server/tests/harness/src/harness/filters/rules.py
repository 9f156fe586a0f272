"""Registers every rule of the grammar: each module of rules does so on import."""

from harness.filters import rules_any, rules_bool, rules_number, rules_other, rules_rewritten, rules_time

__all__ = ["rules_any", "rules_bool", "rules_number", "rules_other", "rules_rewritten", "rules_time"]
