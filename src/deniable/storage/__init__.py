"""Storage: one schema, one `Store` protocol; SQLite in a file, PostgreSQL for several machines."""
