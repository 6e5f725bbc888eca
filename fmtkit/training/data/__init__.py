"""The datasets of a run: converted, mixed and given to a trainer."""
