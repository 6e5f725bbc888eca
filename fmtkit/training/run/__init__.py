"""A run: its folder, its processes, and its results."""
