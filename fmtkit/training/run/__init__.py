"""A run: its folder, its processes, the trainer they build, and its results."""
