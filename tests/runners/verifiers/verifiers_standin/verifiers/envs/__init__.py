"""There, as in the releases whose interface this is."""
