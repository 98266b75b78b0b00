"""The pages that commands show: each builds documents, and data, out of one kind of result."""
