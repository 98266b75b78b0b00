"""What is to be measured: names and grammars in, an explicit list of cells out."""
