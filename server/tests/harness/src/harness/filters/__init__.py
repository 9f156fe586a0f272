"""A random grammar of filters, and the values and rows that each filter should give."""
