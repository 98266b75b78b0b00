"""Rendering: one neutral table model, and one small file of syntax for each format."""
