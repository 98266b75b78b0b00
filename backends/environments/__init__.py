"""The environments of a task, built so that every backend does the same work."""
