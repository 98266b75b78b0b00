"""What users see. Pages make neutral documents and data of results, and one small file for each format writes them."""
