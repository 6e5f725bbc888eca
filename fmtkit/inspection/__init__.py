"""What a source is, what a model would read of it, and what is wrong with it."""
