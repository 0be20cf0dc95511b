"""What a watcher learns today: exposure logs of any tool, measured without the service."""
