"""Processes of Python functions, the functions that they serve, and the table that tests call them for."""
