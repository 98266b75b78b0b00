"""Other Pythons: their packages, environments and adapters; and processes that end with vebench."""
