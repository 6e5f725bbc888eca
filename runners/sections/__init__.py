"""Sections of a configuration: the keys of one feature, and the modules that act on them."""
