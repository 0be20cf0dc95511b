"""What an experiment has done and learned, for people: pages, command line and HTTP share it."""
