"""The commands, each a short composition of what the other folders do."""
