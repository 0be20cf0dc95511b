"""Private labels: segments randomized once, and everything that reads them for free."""
