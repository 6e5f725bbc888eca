"""A stand-in for verifiers 0.2.1: `load_environment`, `MultiTurnEnv` and `Rubric`, as they answer there.

An error of the environment's own kind (`vf.Error`) and one of the model's endpoint are in the record of
the rollout, other exceptions leave `run_rollout`; an answer that a full context was refused ends the
rollout, which is scored; the rollout is scored by the weighted sum of the rubric's functions.
"""

import asyncio
import importlib
import inspect
import json
import os
import urllib.error
import urllib.request


class Error(Exception):
    """What an environment raises on purpose."""


class Rubric:
    def __init__(self, funcs, weights=None):
        self.funcs = funcs
        self.weights = weights or [1.0] * len(funcs)

    async def score(self, state):
        total = 0.0
        for function, weight in zip(self.funcs, self.weights, strict=True):
            value = function(completion=state["completion"], **state["input"])
            value = await value if inspect.isawaitable(value) else value
            state["metrics"][function.__name__] = float(value)
            total += weight * value
        state["reward"] = total


class MultiTurnEnv:
    def __init__(self, dataset, rubric, max_turns=-1, tool_defs=None):
        self.dataset, self.rubric, self.max_turns = dataset, rubric, max_turns
        self.tool_defs = tool_defs

    def get_dataset(self):
        return [
            {**row, "example_id": n, "prompt": [{"role": "user", "content": row["question"]}]}
            for n, row in enumerate(self.dataset)
        ]

    async def run_rollout(self, input, client, model, sampling_args):
        state = {"input": input, "trajectory": [], "completion": [], "metrics": {}}
        state |= {"error": None, "reward": None, "stop_condition": None}
        try:
            await self._play(state, client, model, sampling_args)
        except (Error, urllib.error.URLError) as error:
            state["error"], state["stop_condition"] = error, "has_error"
        await self.rubric.score(state)
        found = state["error"]
        record = {
            "error": type(found).__name__,
            "error_chain_repr": f"{type(found).__name__}('{found}')",
        }
        return {**state, "error": record if found else None}

    async def _play(self, state, client, model, sampling):
        messages = list(state["input"]["prompt"])
        while True:
            try:
                answer = await asyncio.to_thread(self._ask, client, model, messages, sampling)
            except urllib.error.HTTPError as error:
                if "maximum context length" in error.read().decode():
                    state["stop_condition"] = "prompt_too_long"
                    return
                raise
            state["trajectory"].append(answer)
            new = [answer["choices"][0]["message"]]
            state["completion"] += new
            if len(state["trajectory"]) == self.max_turns:
                state["stop_condition"] = "max_turns_reached"
                return
            more = await self.env_response(messages + new, state)
            state["completion"] += more
            messages += new + more

    def _ask(self, client, model, messages, sampling):
        body = {"model": model, "messages": messages, **sampling}
        if self.tool_defs:
            body["tools"] = [{"type": "function", "function": tool} for tool in self.tool_defs]
        request = urllib.request.Request(
            f"{client.api_base_url}/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {os.environ[client.api_key_var]}"},
        )
        with urllib.request.urlopen(request, timeout=client.timeout) as answer:
            return json.loads(answer.read())


def load_environment(env_id, **env_args):
    return importlib.import_module(env_id.replace("-", "_").split("/")[-1]).load_environment(
        **env_args
    )
