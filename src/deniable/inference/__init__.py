"""What an experiment has learned, valid at any look. Pure functions of sums, without storage."""
