"""Writing of tables and quarantined rows to files that appear complete or not at all."""
