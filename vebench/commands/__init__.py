"""The commands. Each is a short composition of functions from the other folders."""
