"""What may be wrong with rows: one module for each kind of finding, and what to do about it."""
