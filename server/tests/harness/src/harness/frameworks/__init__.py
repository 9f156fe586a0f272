"""The conformance suite of the framework adapters."""
