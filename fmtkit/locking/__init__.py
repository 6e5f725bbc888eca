"""A dataset's contract in git: `fmtkit lock` writes what its rows are, `fmtkit check` compares."""
