"""Plans: turns the text of the command line into an explicit list of cells."""
