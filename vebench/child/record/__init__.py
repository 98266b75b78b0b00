"""What a backend returned, kept while it is timed or compared, and the format of that on disk."""
