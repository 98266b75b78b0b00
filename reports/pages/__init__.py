"""What is shown: one neutral document for each kind of result."""
