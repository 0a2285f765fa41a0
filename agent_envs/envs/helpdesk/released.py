"""TauBench: the released airline and retail tasks of tau-bench, from a checkout of it.

    task      "You are mia_li_3668. You want to fly from New York to Seattle on May 20 (one way). ..."
    call      {"name": "cancel_reservation", "arguments": {"reservation_id": "EHGLP3"}}

Tools, results and rewards follow https://github.com/sierra-research/tau-bench (Yao et al. 2024, MIT); its tasks,
tables, policies and descriptions of tools are read from the checkout.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs.checks import choice, string
from agent_envs.datasets.helpdesk.released import ReleasedShop, ReleasedTask, released_shop, released_tasks
from agent_envs.envs.helpdesk.airline import Airline
from agent_envs.envs.helpdesk.llm_customer import CustomerModel
from agent_envs.envs.helpdesk.released_tables import HAND_OVER, Shop, Used, tools_of
from agent_envs.envs.helpdesk.retail import Retail
from agent_envs.errors import ConfigError, ToolError
from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers import get_parser
from agent_envs.tasks import TaskSource
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, ToolResult
from agent_envs.tools.listed import ListedTool, OfferedTool

_SHOPS: Mapping[str, type[Shop]] = {"airline": Airline, "retail": Retail}
_ERROR = "Error: "


@dataclass(slots=True)
class _Service:
    """All that changes in an episode."""

    used: Used = field(default_factory=dict)
    turns: list[tuple[str, str]] = field(default_factory=list)
    """What the policy and then the customer said; the first words of the policy are a greeting."""
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


class TauBenchEnv(ToolEnv):
    """Serve a customer of tau-bench's airline or shop, from a checkout of tau-bench.

    ## Description
    A customer wants bookings or orders changed. The agent follows tau-bench's rules, which are in its instructions: it
    looks rows up, asks for confirmation and changes the tables with tools, which carry out even what the rules forbid.
    The customer is a model behind any server with OpenAI's chat completions, which plays the task's instruction. The
    tools are written from scratch and answer as the released ones do.

    ## Action Space
    Any text. Tool calls in Hermes form, up to 4 a step; a text without a call is said to the customer.

    ## Observation Space
    Text: the customer's words, or the results of the tools. What a tool refuses begins with "Error: ".

    ## Starting State
    The customer's first words; a task drawn from the split, or `options={"index": i}`.

    ## Rewards
    The released one: 1 at the end if the tables are as the reference calls leave them and every required output was
    said to the customer, else 0. An agent that does nothing passes some tasks, as in tau-bench.

    ## Episode End
    Terminates when the customer ends the conversation or is handed over to a human. Truncated after 30 steps, as there.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (changed rows and the customer's last words), `invalid_action` (a
    call that cannot be read or was refused, an empty text), `score`, `success`, `reward_components` (`tables`,
    `outputs`: 1 or 0, at the end), `tool_results` (list of `name`, `content`, `error`), `speaker` ("customer" or
    "tools"), `task_family` (the domain).

    ## Arguments
    `gym.make("AgentR1/TauBench-v0", data="tau-bench", domain="retail", model="qwen", url="http://localhost:8000/v1")`
    - `data`: the folder of a checkout of tau-bench. Nothing in it is run.
    - `domain`: "airline" or "retail".
    - `split`: "test"; retail also has "train" and "dev".
    - `model`, `url`: the model that plays the customer, and its server; OPENAI_BASE_URL and OPENAI_API_KEY by default.
      It has a prompt of this package's own and temperature 0. A server that fails raises a `BackendError`.
    - `parser`, `max_parallel_calls`: see `ToolEnv`.

    ## Data
    tau-bench's own, by path: 50 airline and 115 retail test tasks, 500 retail train and 20 dev tasks (MIT).
    """

    settled_arguments = ("tools", "tool_timeout", "rules")
    recorded_arguments = ("domain",)
    reward_range = (0.0, 1.0)
    call_reminder = "The text is empty. Call a tool: {format}, or say something to the customer."

    def __init__(
        self,
        *,
        domain: str = "airline",
        split: str = "test",
        model: str = "",
        url: str | None = None,
        parser: str = "hermes",
        **kwargs: Any,
    ) -> None:
        self.domain = choice("domain", domain, _SHOPS)
        self.model, self.url = string("model", model), url
        super().__init__(tools=(), split=split, parser=parser, **kwargs)
        if self.data in ("generated", "official"):
            raise ConfigError(f"data must be the folder of a checkout of tau-bench, got {self.data!r}")
        self.voice = CustomerModel(self.model, url)
        _ = self.tasks  # opened here, so that gym.make refuses a wrong folder or split
        offers = [ListedTool(**spec) for spec in self.shop.tools]
        self.registry = ToolRegistry(OfferedTool(offer, self._called) for offer in offers)
        self.parser = get_parser(parser, self.registry.specs)
        self.instructions = f"{self.shop.policy}\nWhat you write without calling a tool is said to the customer."

    @functools.cached_property
    def shop(self) -> ReleasedShop:
        """What all tasks of the domain share; no pickle has it."""
        return released_shop(self.data, self.domain, sorted(tools_of(_SHOPS[self.domain])))

    def open_tasks(self) -> TaskSource:
        return released_tasks(self.data, self.domain, self.split)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "shop"}

    # -- the episode ---------------------------------------------------------------------------------------------

    def begin(self, task: ReleasedTask) -> tuple[str, _Service]:
        state = _Service()
        return self.voice.played(task.instruction, state.turns)[0], state

    def answer(self, text: str) -> Outcome:
        said, over = self.voice.played(self.task.instruction, self.state.turns, text)
        return self._judged(Outcome(said, terminated=over, extra={"speaker": "customer"}))

    def _called(self, name: str, arguments: dict[str, Any]) -> str:
        self.state.calls.append((name, arguments))
        return self._run(self._tables(), name, arguments)

    def _tables(self) -> Shop:
        """Return the tables as the episode has changed them."""
        return _SHOPS[self.domain](self.shop.tables, self.state.used)

    def _run(self, tables: Shop, name: str, arguments: Mapping[str, Any]) -> str:
        """Carry out a call; as released, whatever goes wrong is the call's result."""
        try:
            # Sums of integers of 20 digits and more cannot be written.
            plain = json.loads(json.dumps(arguments), parse_int=lambda n: int(n) if len(n) < 20 else float(n))
            result = tools_of(type(tables))[name](tables, **plain)
            return result if isinstance(result, str) else json.dumps(result)
        except (ToolError, LookupError, TypeError, ValueError, AttributeError) as e:
            return f"{_ERROR}{e}"

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        for result in outcome.extra["tool_results"]:
            result["error"] |= result["content"].startswith(_ERROR)
            outcome.invalid_action |= result["error"]
        outcome.terminated = any(result.name == HAND_OVER and not result.error for result in results)
        return self._judged(outcome)

    def _judged(self, outcome: Outcome) -> Outcome:
        """Add the released reward to the outcome of a last step."""
        if outcome.terminated:
            said = [text.lower().replace(",", "") for text, _ in self.state.turns[1:]]
            right = _SHOPS[self.domain](self.shop.tables, {})
            for name, arguments in self.task.actions:
                if name != HAND_OVER:
                    self._run(right, name, arguments)
            tables = self._tables().changes() == right.changes()
            outputs = all(any(output.lower() in text for text in said) for output in self.task.outputs)
            outcome.components = {"tables": float(tables), "outputs": float(outputs)}
            outcome.success = tables and outputs
            outcome.score = outcome.reward = float(outcome.success)
        return outcome

    def info(self, outcome: Outcome) -> dict[str, Any]:
        speaker = "customer" if outcome.extra.get("speaker") or not outcome.extra else "tools"
        return super().info(outcome) | {"speaker": speaker, "task_family": self.domain}

    def anchor(self) -> str:
        changes = self._tables().changes()
        return "\n".join([self.task.task_id, *(changes[key] for key in sorted(changes)), self.state.turns[-1][1]])

    def right_answer(self) -> str:
        calls = [self.format_call(name, dict(arguments)) for name, arguments in self.task.actions]
        return "\n".join([*calls, *self.task.outputs])

    def expert_action(self) -> str | None:
        """Make the reference calls, then say the required outputs; None once another call was made."""
        actions, done = self.task.actions, self.state.calls
        if list(actions[: len(done)]) != done:
            return None
        if len(done) < len(actions):
            return self.format_call(actions[len(done)][0], dict(actions[len(done)][1]))
        return " ".join(["It is done.", *self.task.outputs])
