"""Adapters of other projects' vectorisers and samplers. Each may need an interpreter of its own."""
