"""What a watcher learns today, measured from the exposure logs of any tool, without the service."""
