"""How it is written: one small file of syntax for each format."""
