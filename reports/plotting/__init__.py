"""How figures are drawn: what matplotlib is asked for, and what becomes of its SVG. See ``vebench.reports.plots``."""
