"""Plans: columns, chains of ops, outputs and fitted plans, as JSON, and from pipelines of other libraries."""
