"""From the bytes of a source to canonical tables: reading, binding, conversion, rendering stages, runs."""
