"""The schema's history, one file a step, run by Alembic."""
