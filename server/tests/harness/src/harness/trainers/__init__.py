"""Training loops that are killed, interrupted and resumed."""
