"""A training configuration: its keys, its schema, and how it is read and checked."""
