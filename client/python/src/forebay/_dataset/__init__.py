"""Datasets: the epochs of one rank as a loop over batches, for the adapters of frameworks."""
