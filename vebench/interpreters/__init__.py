"""Other Pythons: what is installed in them, and which environments and adapters they have."""
