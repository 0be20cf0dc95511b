"""Public data by path, the facts of the paper's applications, and a synthetic portfolio like ASOS's."""
