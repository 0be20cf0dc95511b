"""The expectations layer: what an experiment will really gain, given what is known about click rates."""
