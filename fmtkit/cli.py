"""The command line: `fmtkit`, and `python -m fmtkit`.

Only what an interrupt needs is imported here: Ctrl-C ends a command in one line from its first moment on.
"""

import sys


def main() -> None:
    """Run the command line; every expected error is one line on stderr and an exit code."""
    try:
        from fmtkit.commands import application

        application.run()
    except KeyboardInterrupt:
        sys.stderr.write("fmtkit: interrupted\n")
        sys.exit(130)  # INTERRUPTED of fmtkit.commands.flags, which may not be there yet
