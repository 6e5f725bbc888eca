"""Algorithms that TRL lacks."""
