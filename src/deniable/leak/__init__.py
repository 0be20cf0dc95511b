"""What a tracker learns today: exposure logs of any tool, measured without the service."""
