"""Commands: each parses, calls one function of the library and prints; nothing heavy is imported before."""
