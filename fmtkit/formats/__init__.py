"""Lookup by name: source formats and targets, the schemas of their rows, and shipped files."""
