"""What every package builds on: errors, codes, tables, options, plugins, files, foreign code under limits."""
