"""`python -m fmtkit` is `fmtkit`."""

from fmtkit.cli import main

main()
