"""verifiers: its ToolEnv, driven by a client whose next completion is the next action."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import verifiers as vf
from datasets import Dataset
from probe import QUESTION, RESULT, calculator
from verifiers.legacy.types import Response, ResponseMessage

IMPORT = "from verifiers import ToolEnv"
TASK = "a question and a calculator in its ToolEnv, written by hand: tasks are packages on its hub"
WHY = {
    "gymnasium_env": "is no gymnasium.Env: the environment calls the model",
    "tool_limit": "has a limit of the whole rollout, and none of a call",
    "program": "its Python tool runs on machines of its maker's service",
    "hostile_texts": "an action without a call ends the rollout, and the user's rubric reads it",
    "expert": "has no solver",
    "processed": "is no trainer",
}
logging.disable(logging.CRITICAL)
_loop = asyncio.new_event_loop()


class Client(vf.Client):
    """Hands its prompts out, and takes its completions in."""

    def __init__(self) -> None:
        super().__init__(None)
        self.prompts: asyncio.Queue[Any] = asyncio.Queue()
        self.actions: asyncio.Queue[Any] = asyncio.Queue()

    async def get_response(self, prompt: Any, *args: Any, **kwargs: Any) -> Response:
        self.prompts.put_nowait(prompt)
        text, calls = await self.actions.get()
        message = ResponseMessage(
            content=text, tool_calls=calls, finish_reason="tool_calls" if calls else "stop", is_truncated=False
        )
        return Response(id="r", created=int(time.time()), model="m", message=message)

    def setup_client(self, config: Any) -> None: ...
    async def to_native_tool(self, tool: Any) -> None: ...
    async def to_native_prompt(self, messages: Any) -> Any: ...
    async def get_native_response(self, *args: Any, **kwargs: Any) -> None: ...
    async def raise_from_native_response(self, response: Any) -> None: ...
    async def from_native_response(self, response: Any) -> Any: ...
    async def close(self) -> None: ...


async def right(completion: Any) -> float:
    return float(RESULT in (completion[-1].content or ""))


class Played:
    def __init__(self, functions: dict[str, Any]) -> None:
        rows = Dataset.from_list([{"prompt": [{"role": "user", "content": QUESTION}], "answer": RESULT}])
        rubric = vf.Rubric(funcs=[right])
        self.env = vf.ToolEnv(tools=list(functions.values()), max_turns=20, dataset=rows, rubric=rubric)
        self.row = {**self.env.get_dataset()[0], "example_id": 0}
        self.rollout: Any = None

    def reset(self, seed: int) -> str:
        if self.rollout is not None:
            self.rollout.cancel()
            _loop.run_until_complete(asyncio.gather(self.rollout, return_exceptions=True))
        self.client = Client()
        self.rollout = _loop.create_task(self.env.run_rollout(self.row, self.client, "m", {}))
        return self.advance()[0]

    def step(self, action: tuple[str, Any]) -> tuple[str, float, bool]:
        self.client.actions.put_nowait(action)
        return self.advance()

    def advance(self) -> tuple[str, float, bool]:
        async def wait() -> Any:
            asked = asyncio.ensure_future(self.client.prompts.get())
            await asyncio.wait([asked, self.rollout], return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            asked.cancel()
            return None

        prompt = _loop.run_until_complete(wait())
        if prompt is not None:
            return str(prompt[-1].content), 0.0, False
        out = self.rollout.result()
        if out.get("error"):
            raise RuntimeError(str(out["error"])[:300])
        return "", float(out["reward"]), True


def loop(functions: dict[str, Any], limit: float | None) -> Played:
    return Played(functions)


def task() -> Played:
    return loop({"calculator": calculator}, None)


def action(number: int) -> tuple[str, Any]:
    return call("calculator", {"expression": f"{number}*7"})


def call(name: str, arguments: Any) -> tuple[str, Any]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return "", [vf.ToolCall(id="c", name=name, arguments=written)]


def answer(text: str) -> tuple[str, Any]:
    return text, None
