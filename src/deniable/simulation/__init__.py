"""The simulation layer: environments, two kernels of one law, runs over many repetitions, results."""
