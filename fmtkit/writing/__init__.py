"""Encoded tables and quarantined rows on their way to files that are whole or not there."""
