"""Replicas on other machines: how they are reached, and how they are started there."""
