"""Tokenizers as they lie in a folder, segments of text as tokens, and which turns are trained on."""
