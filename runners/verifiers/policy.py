"""Samples the turns of episodes: a vLLM server for each request, or the trainer for all waiting requests."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from fmtkit.core import http_client
from fmtkit.training.vllm.rollout_settings import capped
from fmtkit.training.vllm.server_state import address

from .endpoint import RefusedError, Sampled

_PATIENCE = 0.05
"""Seconds for which a request waits for others, since one batch is cheaper than many."""


class ServerPolicy:
    """Samples from the trainer's vLLM server; every training process sends its own requests."""

    def __init__(self, trainer: Any, model: str, seconds: float) -> None:
        """Copy the trainer's present sampling settings."""
        self.url = f"{address(vars(trainer.args)).url}/v1/completions"
        self.seconds = seconds
        self.body = {
            "model": model,
            "n": 1,
            "logprobs": 0,
            "return_token_ids": True,
            "temperature": trainer.temperature,
            "top_p": trainer.top_p,
            "top_k": trainer.top_k or -1,
            "min_p": trainer.min_p or 0.0,
            "repetition_penalty": trainer.repetition_penalty,
            **(trainer.args.generation_kwargs or {}),
        }

    def sample(self, prompt: list[int], most: int) -> Sampled:
        """Return the tokens that the server samples; raise RefusedError if it fails."""
        body = {**self.body, "prompt": [prompt], "max_tokens": most}
        try:
            choice = http_client.post(self.url, json.dumps(body).encode(), self.seconds)["choices"][
                0
            ]
            return list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])
        except (http_client.CallError, KeyError, IndexError, TypeError) as error:
            raise RefusedError(503, f"the vLLM server returned no tokens: {error}") from error

    def until(self, running: Iterable["Future[Any]"]) -> None:
        """Wait until all conversations have ended."""
        wait(list(running))


@dataclass
class _Request:
    prompt: list[int]
    most: int
    made: "Future[Sampled]"


class OwnPolicy:
    """Samples from the model in training, in the thread of the trainer: waiting requests form a batch."""

    def __init__(self, generate: Callable[[Sequence[list[int]], int], list[Sampled]]) -> None:
        """Take the function that samples for prompts, given a maximum number of tokens."""
        self.generate = generate
        self.waiting: SimpleQueue[_Request] = SimpleQueue()
        self.is_over = False

    def sample(self, prompt: list[int], most: int) -> Sampled:
        """Wait for the tokens of one request, and return at most `most` of them."""
        request = _Request(prompt, most, Future())
        self.waiting.put(request)
        if self.is_over:
            self._refuse(self._batch(1))
        ids, logprobs = request.made.result()
        return ids[:most], None if logprobs is None else logprobs[:most]

    def until(self, running: Iterable["Future[Any]"]) -> None:
        """Sample requested turns until all conversations have ended; errors of sampling are raised."""
        left = list(running)
        try:
            while left := [future for future in left if not future.done()]:
                batch = self._batch(len(left))
                if batch:
                    self._answer(batch)
        finally:
            self.is_over = True
            self._refuse(self._batch(sys.maxsize))

    def _answer(self, batch: Sequence[_Request]) -> None:
        try:
            most = max(request.most for request in batch)
            made = self.generate([request.prompt for request in batch], most)
        except BaseException:
            self._refuse(batch)
            raise
        for request, tokens in zip(batch, made, strict=True):
            request.made.set_result(tokens)

    def _refuse(self, batch: Iterable[_Request]) -> None:
        for request in batch:
            request.made.set_exception(RefusedError(410, "this conversation has ended"))

    def _batch(self, most: int) -> list[_Request]:
        """Return the waiting requests, at most `most`."""
        batch: list[_Request] = []
        while len(batch) < most:
            try:
                batch.append(self.waiting.get(timeout=_PATIENCE))
            except Empty:
                break
        return batch


def generating(trainer: Any) -> Callable[[Sequence[list[int]], int], list[Sampled]]:
    """Return a function that samples with the trainer's own generation, by transformers or colocated vLLM."""

    def generate(prompts: Sequence[list[int]], most: int) -> list[Sampled]:
        # Without the limit, each turn would generate as many tokens as a complete conversation may have.
        with capped(trainer, most):
            ids, logprobs = trainer._generate_single_turn(list(prompts), None, {}, 1)
        known = logprobs if logprobs is not None else [None] * len(ids)
        return list(zip(ids, known, strict=True))

    return generate
