"""The simulation layer: environments, two equivalent kernels, repeated runs, and results."""
