"""Storage: one schema and one `Store` protocol, for SQLite files and PostgreSQL."""
