"""`--fail-on CODE`: the codes that it takes, and what is printed of those that were found."""

from collections.abc import Iterable, Sequence

from fmtkit.core.codes import REASONS, WARNINGS
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.findings.advice import ADVICE
from fmtkit.formats import registry
from fmtkit.reports import console


def check_codes(
    codes: Sequence[str], *, plugins: Sequence[str] = (), is_survey: bool = False
) -> None:
    """Refuse a code that can never be found: bad rows and warnings have codes, and findings of a survey.

    Plugins are loaded where a code is not fmtkit's: they register theirs.

    Raises:
        UnknownNameError: for a code that there is not.
        OptionError: for a finding that only an inspection makes.
    """
    if not all(_is_known(code) for code in codes):
        for plugin in plugins:
            registry.load_plugin(plugin)
        registry.converters()
    for code in codes:
        if not _is_known(code):
            raise UnknownNameError("finding", code, {*ADVICE, *REASONS, *WARNINGS})
        if not (is_survey or code in REASONS or code in WARNINGS):
            raise OptionError(
                f"--fail-on {code}: only `fmtkit inspect` looks for it: give it --fail-on there"
            )


def _is_known(code: str) -> bool:
    return code in ADVICE or code in REASONS or code in WARNINGS


def print_found(codes: Iterable[str]) -> None:
    """Print a line for each code of --fail-on that was found."""
    for code in codes:
        console.errors().print(f"--fail-on {code}: found", style="red", markup=False)
