"""The options of conversions, inspections, comparisons and runs: each is one field of a dataclass."""
