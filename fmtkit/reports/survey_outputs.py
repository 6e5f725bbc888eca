"""Writing a survey as a page, a picture or JSON, or printing it, as the flags of `fmtkit inspect` ask."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.core.escaping import one_line
from fmtkit.inspection.inspection import Inspection, run
from fmtkit.inspection.survey_record import Survey
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.reports import console as terminal
from fmtkit.reports import html as html_page
from fmtkit.reports import plot as plot_file
from fmtkit.reports.fail_on import check_codes, print_found
from fmtkit.reports.terminal import print_survey
from fmtkit.running.progress_bar import progress


def show(
    source: object,
    options: InspectOptions,
    *,
    html: str | None = None,
    plot: str | None = None,
    overwrite: bool = False,
    fail_on: tuple[str, ...] = (),
    as_json: bool = False,
    quiet: bool = False,
    whole: bool = False,
    bar: bool = False,
) -> tuple[str, ...]:
    """Inspect, write the files asked for and print; return the codes of `fail_on` found.

    `bar` shows a progress bar on a terminal while rows are read.
    """
    check_codes(fail_on, plugins=options.plugins, is_survey=True)
    _targets(html, plot, overwrite=overwrite)
    with progress("inspecting", shown=bar) as watch:
        inspection = run(source, options, watch=watch)
    return show_inspection(
        inspection,
        html=html,
        plot=plot,
        overwrite=overwrite,
        fail_on=fail_on,
        as_json=as_json,
        quiet=quiet,
        whole=whole,
    )


def show_all(
    inspections: Sequence[tuple[str, Inspection]],
    *,
    html: str | None = None,
    plot: str | None = None,
    as_json: bool = False,
    quiet: bool = False,
    **outputs: Any,
) -> tuple[str, ...]:
    """Show inspections by the name of each; return the codes of `fail_on` that were found in any.

    Raises OptionError if a page or picture of several is asked for.
    """
    # The plugins of the datasets are loaded, and have registered their codes.
    check_codes(outputs.get("fail_on", ()), is_survey=True)
    several = len(inspections) > 1
    if several and (html or plot):
        raise OptionError(
            f"there are {len(inspections)} datasets, and a page or picture shows one; inspect its source"
        )
    found: dict[str, None] = {}
    for name, inspection in inspections:
        if several and not (as_json or quiet):
            terminal.output().print(f"== {one_line(name)}", markup=False, highlight=False)
        shown = show_inspection(
            inspection, html=html, plot=plot, as_json=as_json, quiet=quiet, **outputs
        )
        found |= dict.fromkeys(shown)
    return tuple(found)


def show_inspection(
    inspection: Inspection,
    *,
    html: str | None = None,
    plot: str | None = None,
    overwrite: bool = False,
    fail_on: tuple[str, ...] = (),
    as_json: bool = False,
    quiet: bool = False,
    whole: bool = False,
) -> tuple[str, ...]:
    """Write the files asked for and print an inspection; return the codes of `fail_on` found."""
    survey = inspection.survey
    # Checked again, since reading the sources takes time.
    page, picture = _targets(html, plot, overwrite=overwrite)
    if page is not None:
        html_page.write(inspection, page)
    if picture is not None:
        plot_file.write(survey, picture)
    if as_json:
        sys.stdout.write(json_text(survey))
    elif not quiet:
        print_survey(survey, terminal.output(), whole=whole)
    found = survey.found(fail_on)
    print_found(found)
    return found


def _targets(
    html: str | None, plot: str | None, *, overwrite: bool
) -> tuple[Path | None, Path | None]:
    """Return where page and picture go; raises what `fmtkit.writing.outputs.page_path` raises."""
    page = html_page.target(html, overwrite=overwrite) if html else None
    picture = plot_file.target(plot, overwrite=overwrite) if plot else None
    return page, picture


def json_text(survey: Survey) -> str:
    """Return the survey as indented JSON text with a line end."""
    return json.dumps(survey.as_dict(), ensure_ascii=False, indent=2) + "\n"
