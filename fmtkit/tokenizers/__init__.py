"""Tokenizers loaded from a folder, segments of text as tokens, and which turns are trained on."""
