"""Adapters of other projects' vectorisers and samplers, each of which may need an interpreter of its own."""
