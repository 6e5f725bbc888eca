"""Sources: bytes become record batches and rejects."""
