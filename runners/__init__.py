"""Runners: what one training method needs of a table, a trainer and a config."""
