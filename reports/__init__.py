"""The output. Pages make neutral documents and data from results. One module for each format writes them."""
