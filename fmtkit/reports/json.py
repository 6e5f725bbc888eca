"""A survey as JSON: what schemas/survey.schema.json describes."""

import json

from fmtkit.inspection.survey_record import Survey


def encode(survey: Survey) -> str:
    """Return the survey as indented JSON text with a line end."""
    return json.dumps(survey.as_dict(), ensure_ascii=False, indent=2) + "\n"
