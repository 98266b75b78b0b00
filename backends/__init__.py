"""Adapters: one interface over the ways to step many environments."""
