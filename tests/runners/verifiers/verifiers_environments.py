"""The environment of the tests of `verifiers`, written for both of the package's interfaces.

A model is asked `turns` times; the reward counts its vowels. An episode may fail in a turn, each or
every other one, once or always, and may never end.
"""

from collections.abc import Mapping
from pathlib import Path

LEGACY = '''
import asyncio

import verifiers as vf
from datasets import Dataset


class Counting(vf.MultiTurnEnv):
    """Says how often it was answered; may fail in a turn, and may never answer."""

    fails_in, hangs, broken, once = 0, False, False, False
    played = {}

    async def env_response(self, messages, state, **_):
        turn, row = len(state["trajectory"]), state["input"]["answer"]
        self.played[row] = self.played.get(row, 0) + (turn == self.fails_in)
        if self.once and turn == self.fails_in and self.played[row] > 1:
            return [{"role": "user", "content": f"turn {turn}"}]
        if turn == self.fails_in and (self.broken or int(state["input"]["answer"]) % 2):
            raise vf.Error("the board is gone")
        if self.hangs:
            await asyncio.sleep(3600)
        return [{"role": "user", "content": f"turn {turn}"}]


def vowels(completion, **_):
    said = "".join(m["content"] or "" for m in completion if m["role"] == "assistant")
    return float(sum(letter in "aeiou" for letter in said))


def load_environment(
    rows=8, turns=3, fails_in=0, hangs=False, broken=False, once=False, image=None
):
    data = [{"question": f"{n} say good", "answer": str(n)} for n in range(rows)]
    if image is not None:
        link = {"type": "image_url", "image_url": {"url": "data:,"}}
        data[image]["question"] = [{"type": "text", "text": "see"}, link]
    env = Counting(dataset=Dataset.from_list(data), rubric=vf.Rubric(funcs=[vowels]), max_turns=turns)
    env.fails_in, env.hangs, env.broken, env.once = fails_in, hangs, broken, once
    return env
'''
"""With `load_environment`."""

TASKSET = '''
import asyncio

from openai import AsyncOpenAI, BadRequestError
from verifiers import v1 as vf
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult


class CountingData(vf.TaskData):
    answer: str


class CountingTask(vf.Task[CountingData]):
    @vf.reward
    async def vowels(self, trace) -> float:
        said = "".join(m.content or "" for m in trace.branches[-1].messages if m.role == "assistant")
        return float(sum(letter in "aeiou" for letter in said))


class CountingConfig(vf.TasksetConfig):
    rows: int = 8


class Counting(vf.Taskset[CountingTask, CountingConfig]):
    def load(self):
        for n in range(self.config.rows):
            yield CountingTask(CountingData(prompt=f"{n} say good", answer=str(n)), self.config.task)


class TurnsConfig(HarnessConfig):
    turns: int = 3
    fails_in: int = 0
    hangs: bool = False
    broken: bool = False
    once: bool = False


class Turns(vf.Harness[TurnsConfig]):
    """Answers the model in this process; may fail in a turn, and may never answer."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    played = {}

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        has, turn = self.config, 0
        client = AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0)
        said = [{"role": "user", "content": data.prompt}]
        while turn != has.turns:
            try:
                answer = await client.chat.completions.create(model=ctx.model, messages=said)
            except BadRequestError as error:
                if "maximum context length" in str(error):
                    break
                raise
            turn += 1
            said.append({"role": "assistant", "content": answer.choices[0].message.content})
            self.played[data.answer] = self.played.get(data.answer, 0) + (turn == has.fails_in)
            again = has.once and self.played[data.answer] > 1
            if turn == has.fails_in and (has.broken or int(data.answer) % 2) and not again:
                raise RuntimeError("the board is gone")
            if has.hangs:
                await asyncio.sleep(3600)
            said.append({"role": "user", "content": f"turn {turn}"})
        return ProgramResult(0, "", "")


__all__ = ["Counting", "Turns"]
'''
"""With tasksets and harnesses of `verifiers.v1`; this harness asks the model in its own process."""


def has_tasksets_alone(home: str) -> bool:
    """Return whether the verifiers of an environment has no `load_environment` any more."""
    packages = [
        *Path(home).glob("lib/python*/site-packages"),
        *Path(home).glob(".venv/lib/python*/site-packages"),
    ]
    found = [folder / "verifiers" for folder in packages if (folder / "verifiers").is_dir()]
    return bool(found) and not any((found[0] / name).exists() for name in ("envs", "legacy"))


def text(home: str) -> str:
    """Return the module `counting` for the verifiers of an environment."""
    return TASKSET if has_tasksets_alone(home) else LEGACY


def arguments(home: str, given: Mapping[str, object]) -> dict[str, object]:
    """Return what `verifiers.arguments` says for these settings of the environment."""
    if not has_tasksets_alone(home):
        return dict(given)
    turns = ("turns", "fails_in", "hangs", "broken", "once")
    harness = {name: given[name] for name in turns if name in given}
    return {
        "taskset": {name: value for name, value in given.items() if name not in turns},
        "agent": {"harness": {"id": "counting", **harness}, "runtime": {"type": "subprocess"}},
    }
