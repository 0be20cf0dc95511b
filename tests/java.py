"""Java, where it can be had."""

NO_JAVA = "NO JAVA: its HTTP client, which asks for h2c, is not tested"
"""A reason to skip that CI accepts: requests with `Upgrade: h2c` are tested without it too."""
