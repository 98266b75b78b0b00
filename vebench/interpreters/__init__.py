"""Other Pythons: what is installed in one, and what it knows of environments and adapters."""
