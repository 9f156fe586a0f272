"""Parquet files that no ordinary writer produces."""
