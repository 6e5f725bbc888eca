"""Request bodies: the row of the dataset as it was written, and what is added to it."""

import time
from collections.abc import Mapping
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.strict import parse

PARAMS = "responses_create_params"


def row_of(text: str) -> dict[str, Any]:
    """Parse the JSON text of a row; numbers keep their original spelling."""
    value, fault = parse(text.encode(), written=True)
    if fault is not None:
        raise OptionError(f"nemo_gym_row: {fault.message}: convert the data with type nemo_gym")
    return dict(value)


def seed_body(row: Mapping[str, Any]) -> bytes:
    """Return the body of /seed_session: the row."""
    return canonical(dict(row)).encode()


def verify_body(row: Mapping[str, Any], completion: str, model: str, number: int) -> bytes:
    """Return the body of /verify: the row with the answer as a response of one message."""
    return canonical({**row, "response": response_of(completion, model, number)}).encode()


def response_of(completion: str, model: str, number: int) -> dict[str, Any]:
    """Return a completion as a Response of OpenAI's API: https://platform.openai.com/docs/api-reference."""
    part = {"type": "output_text", "text": completion, "annotations": []}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": f"resp_{number}",
        "created_at": int(time.time()),
        "model": model,
        "object": "response",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def run_body(row: Mapping[str, Any], sampling: Mapping[str, float]) -> bytes:
    """Return the body of /run: the row, with the trainer's sampling in the request to the model.

    Temperature and nucleus are the trainer's, since it corrects for no others; a limit on the tokens of
    a turn that is in the row holds. Other keys would be refused: the server knows only OpenAI's.
    """
    params = dict(row.get(PARAMS) or {})
    for name in ("temperature", "top_p"):
        params[name] = sampling[name]
    if params.get("max_output_tokens") is None:
        params["max_output_tokens"] = sampling["max_output_tokens"]
    return canonical({**row, PARAMS: params}).encode()
