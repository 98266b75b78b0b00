"""From raw windows to rates, intervals, ratios and findings. Pure functions; no input or output."""
