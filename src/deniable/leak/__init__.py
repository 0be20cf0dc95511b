"""What a tracker learns today: exposure logs of any experimentation tool, measured without the service."""
