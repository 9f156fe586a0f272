"""Text for terminals and notebooks; imports nothing else of the package."""
