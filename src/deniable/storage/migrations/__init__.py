"""The history of the schema, with one file per step, run by Alembic."""
