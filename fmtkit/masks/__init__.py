"""Which tokens of a row are trained, and where each token comes from."""
