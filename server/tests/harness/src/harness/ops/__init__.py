"""Tables for the tests of ops, and independent implementations of ops."""
