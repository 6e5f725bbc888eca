"""JSON Schemas of what fmtkit reads and writes."""
