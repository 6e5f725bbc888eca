"""Whether a chat template can carry tool calls, checked before a model is loaded; TRL checks later."""

import copy
from typing import Any

from fmtkit.core.errors import OptionError

_NEXT = (
    "use a model that calls tools with its own template (chat_template: tokenizer_default), such as "
    "Qwen3, Llama 3.1 or GLM 4"
)


def check(tokenizer: Any, origin: str) -> None:
    """Raise OptionError unless the template writes tool calls and TRL knows how to read them."""
    from trl.chat_template_utils import add_response_schema, supports_tool_calling

    if not supports_tool_calling(tokenizer):
        raise OptionError(f"{origin}: the chat template cannot write tool calls; {_NEXT}")
    told = (getattr(tokenizer, name, None) for name in ("response_template", "response_schema"))
    if any(value is not None for value in told):
        return
    try:
        # TRL knows templates by their text; what it finds is put on the copy.
        add_response_schema(copy.copy(tokenizer))
    except ValueError as error:
        raise OptionError(
            f"{origin}: TRL does not know how to read tool calls in this chat template; {_NEXT}, or set "
            "the tokenizer's response_template"
        ) from error
