"""What an experiment has learned, valid at any look: pure functions of sums, without storage."""
