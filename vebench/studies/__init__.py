"""Studies: questions about sampling, each with the grid that is measured for it and how its answer is concluded."""
