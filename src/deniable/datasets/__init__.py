"""Public datasets, the figures of the paper's applications, and a synthetic portfolio like ASOS's."""
