"""Stores on this machine that a server reads from, with one interface: each passes the same tests."""
