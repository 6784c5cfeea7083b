//! PostgreSQL: the suite, upserts, types, and wrong tables.
