"""Regressions: ``check``, ``compare``, ``bisect`` and ``history``."""
