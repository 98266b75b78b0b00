"""Replicas on other machines: how they are reached, whose clock they have, and how they are started there."""
