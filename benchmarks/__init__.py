"""Speed, measured as ratios to a named rival in the same run. `make bench` runs every module here."""
