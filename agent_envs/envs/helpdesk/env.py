"""HelpDesk: serve a scripted customer under a rule book that is drawn afresh for every task.

    book      "2.1 The hire may not be cancelled if the hire starts in fewer than 3 days."
              "2.2 Rule 2.1 does not apply if the reason given is illness."
    customer  "Hello. Could you call off my hire H96435?"
    call      {"name": "decline", "arguments": {"id": "H96435", "act": "cancel_hire", "rule": "2.1"}}

The idea of an agent between rules, tools and a customer is tau-bench's (Yao et al. 2024); worlds, rules and customers
are this project's, and nothing in them needs a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.checks import choice, shown, string
from agent_envs.datasets.helpdesk.generated.domain import load_domain
from agent_envs.datasets.helpdesk.generated.solving import HelpDeskTask
from agent_envs.datasets.helpdesk.generated.worlds import DEFAULT_LEVEL, HelpDeskTasks
from agent_envs.envs.helpdesk.customer import Customer
from agent_envs.envs.helpdesk.desk import Clerk, Desk, open_desk
from agent_envs.envs.helpdesk.expert import Move, mistaken_move, next_move
from agent_envs.envs.helpdesk.llm_customer import CustomerModel
from agent_envs.envs.helpdesk.reward import UNPAID, Score, gold_of, score_of
from agent_envs.envs.helpdesk.tools import shared_tools
from agent_envs.envs.helpdesk.wanting import Mind
from agent_envs.errors import ConfigError
from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolResult

_INSTRUCTIONS = (
    "You serve customers of {shop}. Today is {day}. What you write without calling a tool is said to the {noun}; "
    "letters about every change and every note go out at once. The rules:\n\n{book}"
)


@dataclass(slots=True)
class _Service:
    """All that changes in an episode, and the score that has been paid."""

    desk: Desk
    mind: Mind
    paid: Score = UNPAID


class HelpDeskEnv(ToolEnv):
    """Serve a customer by the company's rules.

    ## Description
    A customer asks a shop for something. The policy identifies the customer, looks rows up with tools, asks for what
    only the customer knows, and judges the request by the rule book in its instructions: some rules forbid acts, others
    make exceptions to them, and so on. The policy offers what is allowed and carries it out after a yes; it notes what
    is forbidden with the number of the rule. From level 5 on, some customers have a faulty device, which they inspect
    and handle as they are told. The tools carry out even what the rules forbid, so the book, which differs in every
    task, has to be read. The customer is a program that understands free text, makes only planned mistakes (a misread
    number, a change of mind), and ends the conversation when letters from the shop say that all is settled.

    ## Action Space
    Any text. Tool calls in Hermes form, up to 4 a step; a text without a call is said to the customer.

    ## Observation Space
    Text: the customer's words, or the results of the tools.

    ## Starting State
    The first words of a customer; a task drawn from the split, or `options={"index": i}`.

    ## Rewards
    A task requires changed cells of the tables, noted refusals with their rules, and amounts that the customer has to
    be told. The score is the number of these that are there at the end, less one for every other change or note and for
    every fault of conduct (telling an amount or acting before the code word was checked, changing something without a
    yes), divided by the number required, and at least 0.
    - `reward="terminal"`: 1 at the end if all of these and nothing else is there, else 0.
    - `reward="progress"`: each valid step pays the change of the score, so that the return is the final score.

    ## Episode End
    Terminates when the customer's requests are settled, or when its patience ends, after about twice as many texts as
    are needed. Truncated after 120 steps.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the open request, what was told, the changes), `invalid_action` (a
    call that cannot be read or was refused, an empty text), `score`, `success`, `reward_components` (`changes`,
    `notes`, `told`, `conduct`: shares, at the end; with "progress" their changes), `tool_results` (list of `name`,
    `content`, `error`), `speaker` ("customer" or "tools"), `heard` (what the customer heard, such as "ask:name,code"
    or "offer"), `volunteered` (facts that were told without being asked), `task_family` (the domain), `task_pair`
    (which twins, "" in other splits), `level`, `deciding` (rules that each change what is right).

    ## Arguments
    `gym.make("AgentR1/HelpDesk-v0", split="train", level="1-8", domains="all", talk="varied", reward="terminal")`
    - `split`: "train", "validation", "test", "new" (domains of no other split), or "twins" (tasks 2i and 2i + 1 differ
      in one fact, so that something else is right).
    - `level`: 1 (a request, rules without exceptions) to 8 (six requests, chains of five links, rules on what was done
      before), or a range such as "1-3".
    - `domains`: "all", a name, or names with commas between them.
    - `talk`: "varied", or "plain" with one frame for each kind of sentence.
    - `customer`: "scripted", or "voiced": a model puts what the customer says into words of its own, which are taken if
      they have the same names and numbers. A server that fails raises a `BackendError`.
    - `model`, `url`: the model that gives the voice, and its server with OpenAI's chat completions.
    - `reward`: see above.
    - `expert`: "explore" acts on what was said and shown; "reasons" also says in `<think>`, before it judges, what each
      rule tests and whether it holds.
    - `parser`, `max_parallel_calls`: see `ToolEnv`.

    ## Data
    Generated: 100,000 train and 1,000 each of validation, test, new and twins. Sections of rules belong to one of
    train, validation and test; the expert solves every task.

    tiny-base begins to read the rules from demonstrations with `expert="reasons"`: it solves 0.52 to 0.55 of the test
    tasks of level 1 in one domain (three runs) and 13 to 16 of 50 pairs of twins, where allowing all solves 0.54 and
    no pair. Reinforcement learning added nothing so far (`benchmarks/results/README.md`).
    """

    settled_arguments = ("tools", "tool_timeout", "rules")
    recorded_arguments = ("level", "domains", "talk", "customer", "reward", "expert")
    later_arguments = ("customer", "model", "expert")
    reward_range = (0.0, 1.0)
    call_reminder = "The text is empty. Call a tool: {format}, or say something to the customer."

    def __init__(
        self,
        *,
        level: int | str | Sequence[int] = DEFAULT_LEVEL,
        domains: str | Sequence[str] = "all",
        talk: str = "varied",
        customer: str = "scripted",
        model: str = "",
        url: str | None = None,
        reward: str = "terminal",
        expert: str = "explore",
        parser: str = "hermes",
        **kwargs: Any,
    ) -> None:
        self.level, self.domains = level, domains
        self.expert = choice("expert", expert, ["explore", "reasons"])
        self.talk = choice("talk", talk, ["varied", "plain"])
        self.customer = choice("customer", customer, ["scripted", "voiced"])
        self.model, self.url = string("model", model), url
        if customer == "scripted" and (model or url):
            raise ConfigError("model and url are of customer='voiced'; the scripted one has none")
        self.voice = CustomerModel(self.model, url) if customer == "voiced" else None
        self.reward = choice("reward", reward, ["terminal", "progress"])
        super().__init__(tools=(), parser=parser, **kwargs)
        self._serve(self.open_tasks().domains[0])  # so that gym.make refuses a wrong split, level or domain
        self.instructions = _INSTRUCTIONS.format(shop="a shop", day="a day", noun="customer", book="(drawn at reset)")

    def open_tasks(self) -> HelpDeskTasks:
        if self.data != "generated":
            raise ConfigError(f"data must be 'generated', got {shown(self.data)}")
        return HelpDeskTasks.shared(self.split, self.level, self.domains)

    # -- what follows from the task ------------------------------------------------------------------------------

    def _serve(self, domain: str) -> None:
        """Take the tools of a domain."""
        self.domain = load_domain(domain)
        registry, self.parser = shared_tools(self.domain, self.parser.name)
        self.registry = registry.bound(clerk=self._clerk)

    def _play(self, index: int, task: HelpDeskTask) -> None:
        super()._play(index, task)
        if task.domain != self.domain.name:
            self._serve(task.domain)
        self._gold = gold_of(task, self.domain)
        words = {"shop": task.shop, "day": task.today.isoformat(), "noun": self.domain.customer.noun}
        self.instructions = _INSTRUCTIONS.format(**words, book=task.book.text)

    def _clerk(self) -> Clerk:
        return Clerk(self.state.desk, self.task, self.domain)

    def _customer(self) -> Customer:
        return Customer(self.task, self.domain, self.state.desk, self.state.mind, plain=self.talk == "plain")

    # -- the episode ---------------------------------------------------------------------------------------------

    def begin(self, task: HelpDeskTask) -> tuple[str, _Service]:
        self.state = _Service(open_desk(task, self.domain), Mind())
        return self._voiced(self._customer().opening()), self.state

    def _voiced(self, sentence: str) -> str:
        if self.voice is None:
            return sentence
        return self.voice.voiced(sentence, [*self._customer().values().values(), *self.task.rows["catalogue"]])

    def answer(self, text: str) -> Outcome:
        said = self._customer().reply(text)
        return self._paid(Outcome(self._voiced(said), terminated=self.state.mind.over, extra={"speaker": "customer"}))

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        writing = (*self.domain.acts, "decline")  # who looks up what is not there has learned something
        outcome.invalid_action |= any(result.error and result.name in writing for result in results)
        self.state.mind.heard = ""
        return self._paid(outcome)

    def _paid(self, outcome: Outcome) -> Outcome:
        """Add the score to an outcome, and the reward."""
        state = self.state
        score = score_of(self._gold, state.desk, state.mind.beliefs)
        outcome.score, outcome.success = score.score, score.perfect and outcome.terminated
        if self.reward == "terminal":
            if outcome.terminated:
                outcome.reward, outcome.components = float(outcome.success), score.components
        elif not outcome.invalid_action:
            paid, state.paid = state.paid, score
            outcome.reward = score.score - paid.score
            before = paid.components
            outcome.components = {name: share - before.get(name, 0.0) for name, share in score.components.items()}
        return outcome

    def info(self, outcome: Outcome) -> dict[str, Any]:
        mind, task = self.state.mind, self.task
        return {
            **super().info(outcome),
            "speaker": "customer" if outcome.extra.get("speaker") or not outcome.extra else "tools",
            "heard": mind.heard,
            "volunteered": mind.volunteered,
            "task_family": task.domain,
            "task_pair": str(int(task.task_id.rpartition("/")[2]) // 2) if "/twins/" in task.task_id else "",
            "level": task.level,
            "deciding": task.solution.deciding,
        }

    def anchor(self) -> str:
        mind, desk = self.state.mind, self.state.desk
        changes, notes = [" ".join(map(str, (*cell, value))) for cell, value in desk.diff().items()], desk.notes()
        place = f"{self._task.task_id} request {mind.request} wish {mind.wish}"
        return "\n".join([place, *sorted(mind.told), *sorted(changes), *sorted(map(" ".join, notes))])

    def prompt_state(self) -> dict[str, Any]:
        """Return the book, the customer's last words, what was looked up and whether an amount is waited for."""
        seen, last, waits = self.state.desk.seen, self.state.mind.last, self._customer().asks_amount
        return {"rules": self.task.book.text, "last_words": last, "looked_up": list(seen), "waits_for_amount": waits}

    def right_answer(self) -> str:
        lines = []
        for deed in self.task.solution.deeds:
            said = ", ".join(f"{name}={value}" for name, value in deed.arguments.items())
            lines.append(" ".join(filter(None, (*deed[:4], said))))
        return "\n".join(lines)

    # -- experts -------------------------------------------------------------------------------------------------

    def expert_action(self) -> str | None:
        """Do the next thing by the book, from what was said and shown."""
        return self._written(next_move(self._customer()))

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that with probability `noise` makes one of the `MISTAKES`."""
        customer = self._customer()
        return self._written(mistaken_move(customer, rng) if rng.random() < noise else next_move(customer))

    def _written(self, move: Move) -> str:
        action = self.format_call(move.tool, dict(move.arguments)) if move.tool else move.text
        return f"<think>\n{move.reasons}\n</think>\n{action}" if self.expert == "reasons" and move.reasons else action
