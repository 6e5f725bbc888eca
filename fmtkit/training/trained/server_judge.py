"""A judge that is a model behind an OpenAI-compatible server, which is asked for the better answer."""

import json
import os
import re

from fmtkit.core import http_client
from fmtkit.core.errors import OptionError

KEY_VARIABLE = "OPENAI_API_KEY"
SECONDS = 60.0
"""Time limit of a request."""
ASKED = """\
Which of two answers to a prompt is better? Say A, B or TIE, and nothing else.

<prompt>
{prompt}
</prompt>
<answer A>
{first}
</answer A>
<answer B>
{second}
</answer B>"""
_SAID = re.compile(r"\W*(A|B|TIE)\W*", re.IGNORECASE)
_THOUGHT = re.compile(r".*</think>", re.DOTALL)
"""What a model that reasons writes before its answer, where the server leaves it in."""
TOKENS = 2048
"""Tokens of an answer, with what is thought before it."""


class ServerJudge:
    """Asks a server, by its `/chat/completions`; what it says other than A, B or TIE is no verdict.

    A server whose answer has no such part, or is an error, gave none either.
    """

    def __init__(self, url: str, model: str | None) -> None:
        """Raise OptionError without the name of a model, or where no server answers."""
        if not model:
            raise OptionError("--judge URL: name the server's model by --judge-model")
        self.url = url.rstrip("/") + "/chat/completions"
        self.model = model
        self.session = http_client.session()
        key = os.environ.get(KEY_VARIABLE)
        if key:
            self.session.headers["Authorization"] = f"Bearer {key}"
        if not http_client.answers(f"{url.rstrip('/')}/models", SECONDS):
            # Said before any model is loaded, and any answer made.
            raise OptionError(f"--judge {url}: no server answers there")

    def __call__(self, prompt: str, first: str, second: str) -> object:
        """Return 0, 1, "tie", or what the model said instead."""
        asked = ASKED.format(prompt=prompt, first=first, second=second)
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": asked}],
            "temperature": 0,
            "max_tokens": TOKENS,
        }
        data = json.dumps(body).encode()
        answer = http_client.post(self.url, data, SECONDS, self.session, repeats=True)
        said = str(answer["choices"][0]["message"]["content"])
        found = _SAID.fullmatch(_THOUGHT.sub("", said, count=1))
        return said if found is None else {"A": 0, "B": 1, "TIE": "tie"}[found.group(1).upper()]
