"""The formats that pages are written in: a table of them, and one small file of syntax for each."""
