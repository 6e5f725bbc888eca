"""An OpenAI-compatible server on loopback for the policy of a run, which records every token.

Each conversation has an address of its own, so that its client needs only a base URL. The prompt of a request
consists of the tokens exchanged before and those of the new messages: nothing that the model wrote is
tokenized again. A conversation that has no room left gets the answer that OpenAI's API has for a context that
is full, and ends.
"""

import copy
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jinja2.exceptions import TemplateError

from fmtkit.training.online.conversations.tokenized_conversation import (
    CUT,
    MISMATCH,
    TokenizedConversation,
)

Sampled = tuple[list[int], list[float] | None]
Sample = Callable[[list[int], int], Sampled]
"""(prompt ids, most tokens) -> (sampled ids, their log-probabilities where they are known)."""
_DUMMY = "dummy"


class RefusedError(Exception):
    """A request is refused; holds the reason, the status and the code."""

    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass
class Conversation:
    """The messages and tokens exchanged at one base URL."""

    limit: int
    sample: Sample
    tokens: TokenizedConversation | None = None
    history: list[tuple[str, str, str]] = field(default_factory=list)
    fault: str = ""
    """Why the environment cannot be served, which ends the run."""
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def follows(self) -> bool:
        """Return whether new requests still extend the recorded sequence."""
        return self.tokens is None or self.tokens.outcome != MISMATCH


class Wording:
    """The run's tokenizer and template, for several threads: messages to tokens and back."""

    def __init__(self, tokenizer: Any, variables: Mapping[str, Any] | None = None) -> None:
        """Copy the tokenizer: fast ones refuse two users at once."""
        self.tokenizer = copy.deepcopy(tokenizer)
        self.variables = dict(variables or {})
        self.lock = threading.Lock()
        self.reads_calls = self._readable()
        self.template = self._lasting()

    def _readable(self) -> bool:
        from trl.chat_template_utils import add_response_schema

        names = ("response_template", "response_schema")
        if any(getattr(self.tokenizer, name, None) is not None for name in names):
            return True
        try:
            self.tokenizer = add_response_schema(self.tokenizer)
        except ValueError:
            return False
        return True

    def _lasting(self) -> str | None:
        """Return TRL's prefix-preserving version of the template, if there is one.

        That is what TRL itself does for tools; None for the tokenizer's own.
        """
        from trl.chat_template_utils import (
            get_training_chat_template,
            is_chat_template_prefix_preserving,
        )

        try:
            if is_chat_template_prefix_preserving(self.tokenizer):
                return None
            found: str | None = get_training_chat_template(self.tokenizer)
        except (ValueError, TemplateError):
            # One that TRL does not know is taken as it is; `more` reports where it rewrites answers.
            return None
        return found

    def prompt(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> list[int]:
        """Return the tokens of a conversation up to where the model answers."""
        with self.lock:
            return self._ids(messages, tools, ends=False)

    def more(self, new: Sequence[Mapping[str, Any]], last: int) -> list[int]:
        """Return the tokens of messages after an answer whose last token is `last`.

        They are those that the template adds to a conversation that ends with an answer; the end of
        that answer is among them where the model was cut before it.
        """
        answer: dict[str, Any] = {"role": "assistant", "content": _DUMMY}
        if new[0].get("role") == "tool":
            name = str(new[0].get("name") or _DUMMY)
            answer["tool_calls"] = [
                {"type": "function", "function": {"name": name, "arguments": {}}}
            ]
        begun = [{"role": "user", "content": _DUMMY}, answer]
        with self.lock:
            before = self._ids(begun, None, ends=True)
            after = self._ids([*begun, *new], None, ends=False)
            end = self.tokenizer.eos_token_id
        cut = len(before) - before[::-1].index(end) if end in before else len(before)
        if after[:cut] != before[:cut]:
            raise RefusedError(400, "the chat template rewrites an answer when messages follow it")
        return after[cut:] if last == end or end not in before else [end, *after[cut:]]

    def _ids(self, messages: Sequence[Mapping[str, Any]], tools: Any, *, ends: bool) -> list[int]:
        ids = self.tokenizer.apply_chat_template(
            [plain(message) for message in messages],
            tools=tools or None,
            chat_template=self.template,
            add_generation_prompt=not ends,
            tokenize=True,
            return_dict=False,
            **self.variables,
        )
        return list(ids)

    def message(self, prompt: list[int], ids: list[int], tools: Any) -> dict[str, Any]:
        """Return an answer as a message of OpenAI's API, its tool calls read."""
        from trl.chat_template_utils import parse_response

        with self.lock:
            if not tools:
                text = self.tokenizer.decode(ids, skip_special_tokens=True)
                return {"role": "assistant", "content": text}
            found = parse_response(self.tokenizer, ids, prefix=prompt, tools=tools)
        calls = [
            {"id": f"call_{n}", "type": "function", "function": _as_text(call["function"])}
            for n, call in enumerate(found.get("tool_calls") or ())
        ]
        out = {"role": "assistant", "content": found.get("content") or ""}
        return {**out, "tool_calls": calls} if calls else out


def _as_text(function: Mapping[str, Any]) -> dict[str, str]:
    return {"name": function["name"], "arguments": json.dumps(function.get("arguments") or {})}


def plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates read it: its content a string, arguments of calls as values."""
    out = {name: message[name] for name in ("role", "name", "tool_call_id") if message.get(name)}
    out["content"] = text_of(message)
    if message.get("tool_calls"):
        out["tool_calls"] = [
            {"type": "function", "function": _as_values(call["function"])}
            for call in message["tool_calls"]
        ]
    return out


def _as_values(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {}
    return {"name": function["name"], "arguments": arguments or {}}


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message whose content may be in parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in content)


def unread_part(messages: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the type of the first content part that is not text (`image_url`), or None."""
    contents = (message.get("content") for message in messages)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    types = (str(part.get("type")) for part in parts if part.get("text") is None)
    return next(types, None)


def comparable(message: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what is compared of a message: environments may reformat an answer when they send it back."""
    calls = [
        (call["function"]["name"], _as_values(call["function"])["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    return str(message.get("role")), text_of(message).strip(), json.dumps(calls, sort_keys=True)


class Endpoint:
    """Serves the conversations that are open, on a free port of this machine."""

    def __init__(self, wording: Wording, model: str) -> None:
        """Begin to serve; `model` is the name that answers carry."""
        self.wording = wording
        self.model = model
        self.open: dict[str, Conversation] = {}
        self._numbers = itertools.count()
        handler = type("Bound", (_Handler,), {"endpoint": self})
        self.server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

    def begin(self, limit: int, sample: Sample) -> tuple[str, Conversation]:
        """Open a conversation of at most `limit` tokens after its prompt; return its base URL."""
        key = f"dialog-{next(self._numbers)}"
        self.open[key] = Conversation(limit, sample)
        return f"http://127.0.0.1:{self.server.server_port}/{key}/v1", self.open[key]

    def end(self, url: str) -> None:
        """Close a conversation: further requests for it are refused. It may be closed."""
        conversation = self.open.pop(url.split("/")[-2], None)
        if conversation is not None:
            conversation.is_closed = True

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()

    def answer(self, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of /chat/completions; raise RefusedError where there is no answer."""
        conversation = self.open.get(key)
        if conversation is None:
            raise RefusedError(410, "this conversation has ended")
        if body.get("n") not in {None, 1}:
            raise RefusedError(400, "one answer at a time")
        if body.get("tools") and not self.wording.reads_calls:
            conversation.fault = (
                "its environment offers tools, and TRL does not know how to read tool calls in this "
                "chat template; use a model that calls tools with its own template"
            )
            raise RefusedError(400, conversation.fault)
        unread = unread_part(body["messages"])
        if unread is not None:
            conversation.fault = (
                f"its environment sends a part of type {unread!r}; only text can be trained on"
            )
            raise RefusedError(400, conversation.fault)
        with conversation.lock:
            return self._answered(conversation, body)

    def _answered(self, conversation: Conversation, body: Mapping[str, Any]) -> dict[str, Any]:
        messages, tools = body["messages"], body.get("tools")
        prompt = self._read(conversation, messages, tools)
        tokens = conversation.tokens
        assert tokens is not None
        room = conversation.limit - len(tokens.completion_ids)
        if room <= 0:
            if conversation.follows:
                tokens.outcome = CUT
            raise RefusedError(
                400,
                f"This model's maximum context length is {len(prompt) + room} tokens",
                "context_length_exceeded",
            )
        allowed = body.get("max_completion_tokens") or body.get("max_tokens") or room
        ids, logprobs = conversation.sample(prompt, min(room, int(allowed)))
        if conversation.is_closed:
            raise RefusedError(410, "this conversation has ended")
        message = self.wording.message(prompt, ids, tools)
        if conversation.follows:
            tokens.generate(ids, logprobs or ())
            conversation.history = [*map(comparable, messages), comparable(message)]
        ended = ids[-1] == self.wording.tokenizer.eos_token_id
        calls = "tool_calls" in message
        choice = {"index": 0, "message": message, "logprobs": None}
        choice["finish_reason"] = "length" if not ended else "tool_calls" if calls else "stop"
        return {
            "id": f"chatcmpl-{time.monotonic_ns()}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [choice],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(ids),
                "total_tokens": len(prompt) + len(ids),
            },
        }

    def _read(
        self, conversation: Conversation, messages: Sequence[Mapping[str, Any]], tools: Any
    ) -> list[int]:
        """Return what the model reads, and add what is new of it to the conversation."""
        tokens = conversation.tokens
        if tokens is None:
            ids = self.wording.prompt(messages, tools)
            conversation.tokens = TokenizedConversation(prompt_ids=ids)
            return list(ids)
        count = len(conversation.history)
        goes_on = (
            len(messages) > count and [*map(comparable, messages[:count])] == conversation.history
        )
        if not conversation.follows or not goes_on:
            # A different sequence from the one that is trained on: answered, and left out.
            tokens.outcome = MISMATCH
            return self.wording.prompt(messages, tools)
        before = tokens.prompt_ids + tokens.completion_ids
        try:
            more = self.wording.more(messages[count:], before[-1])
        except RefusedError as error:
            conversation.fault = str(error)
            raise
        tokens.insert(more)
        return before + more


class _Handler(BaseHTTPRequestHandler):
    """HTTP request handler of an endpoint, which a subclass sets."""

    protocol_version = "HTTP/1.1"
    endpoint: Endpoint

    def do_GET(self) -> None:
        """List the one model that is served."""
        model = {"id": self.endpoint.model, "object": "model", "owned_by": "fmtkit"}
        self._send(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answer a completion request, or refuse it as OpenAI's API does."""
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, key, *rest = self.path.split("/")
        if rest != ["v1", "chat", "completions"]:
            said = {"message": f"{self.path}: /chat/completions alone is served"}
            return self._send(404, {"error": said})
        try:
            body = json.loads(text)
            answer = self.endpoint.answer(key, body)
            self._stream(answer) if body.get("stream") else self._send(200, answer)
        except RefusedError as error:
            said = {"message": str(error), "type": "invalid_request_error", "code": error.code}
            self._send(error.status, {"error": said})
        except (KeyError, TypeError, ValueError) as error:
            self._send(400, {"error": {"message": f"{type(error).__name__}: {error}"}})

    def _send(self, status: int, value: Mapping[str, Any]) -> None:
        self._write(status, "application/json", json.dumps(value).encode())

    def _stream(self, answer: Mapping[str, Any]) -> None:
        """Send an answer as a stream of events, to a client that asked for one; all text is in one event."""
        (choice,) = answer["choices"]
        calls = [
            {**call, "index": n} for n, call in enumerate(choice["message"].get("tool_calls", ()))
        ]
        delta = {**choice["message"], **({"tool_calls": calls} if calls else {})}
        shared = {**answer, "object": "chat.completion.chunk", "usage": None}
        chunks = [
            {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {
                **shared,
                "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}],
            },
            {**shared, "choices": [], "usage": answer["usage"]},
        ]
        events = [*map(json.dumps, chunks), "[DONE]"]
        data = "".join(f"data: {event}\n\n" for event in events)
        self._write(200, "text/event-stream", data.encode())

    def _write(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2048
