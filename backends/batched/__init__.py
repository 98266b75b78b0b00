"""Simulators that step a whole batch in one call: any vector environment, JAX, Warp and torch."""
