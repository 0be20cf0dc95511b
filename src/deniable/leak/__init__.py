"""What a tracker learns today, measured from the exposure logs of any tool, without the service."""
