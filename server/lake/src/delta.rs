//! Delta tables.
