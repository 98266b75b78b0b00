"""Sharing a run: submissions that others check, a site from them, and how to quote a run."""
