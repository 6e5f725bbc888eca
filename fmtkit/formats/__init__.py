"""Lookup by name: source formats and their options, targets, the schemas of rows, and shipped files."""
