"""What policies see and earn in stacks of wrappers."""

import itertools
from functools import partial
from typing import Any

import gymnasium as gym

from agent_envs import wrappers
from agent_envs.policies import RandomPolicy
from pinned.pins import pin
from pinned.play import HOUSE, ODD, PAPERS, POLICIES, QA, SHOP, TOOLS, played


def noted(observation: str, info: dict[str, Any]) -> str | None:
    return f"{len(observation)} characters, {info['task_id']}" if len(observation) % 2 else None


def normalised(env: gym.Env[Any, Any], **arguments: Any) -> gym.Env[Any, Any]:
    """With statistics of its own: those of a name are kept as long as the process."""
    return wrappers.RewardNormalisation(env, name=f"pinned {next(_numbers)}", **arguments)


_numbers = itertools.count()


class OddAndExpert:
    """Every other action is odd, the others are the expert's."""

    def start(self, env: gym.Env[Any, str]) -> Any:
        odd = iter([ODD[9], "<think>hm</think>" + ODD[13], ODD[20], "<think>no such thing", ODD[18]] * 20)
        turns = iter([True, False] * 50)

        class Actor:
            def act(self, observation: Any, info: dict[str, Any]) -> str:
                return next(odd) if next(turns) else env.get_wrapper_attr("expert_action")() or " "

        return Actor()


augment = partial(wrappers.Augment, fn=noted)
STACKS: dict[str, tuple[str, list[Any]]] = {
    "AsTool": (HOUSE, ["AsTool"]),
    "AsTool-named": (SHOP, ["AsTool(name='act', parser='qwen_coder', max_calls=2)", "ChatMessages(tools='text')"]),
    "Augment": (QA, [augment, "ChatMessages"]),
    "ChatMessages": (TOOLS, ["ChatMessages"]),
    "ChatMessages-strip": (QA, ["ChatMessages(reasoning='strip', max_length=20000)"]),
    "ChatMessages-text": (PAPERS, ["ChatMessages(tools='text')"]),
    "FormatReward": (TOOLS, ["FormatReward(weight=0.3)"]),
    "InvalidActionPenalty": (SHOP, ["InvalidActionPenalty(penalty=0.2)", "StepPenalty"]),
    "MalformedCalls-end": (TOOLS, ["MalformedCalls(policy='end')"]),
    "MalformedCalls-observe": (QA, ["MalformedCalls"]),
    "MalformedCalls-retry": (HOUSE, ["AsTool", "MalformedCalls(policy='retry', max_retries=1)", "ChatMessages"]),
    "PrependInstructions": (PAPERS, ["PrependInstructions"]),
    "PrependInstructions-rebuilt": (QA, ["RebuildPrompt", "PrependInstructions(separator='|')"]),
    "RebuildPrompt-alfworld": (HOUSE, ["RebuildPrompt(template='alfworld', history=2)"]),
    "RebuildPrompt-chat": (SHOP, ["StripReasoning", "RebuildPrompt(max_length=2000)", "ChatMessages"]),
    "RebuildPrompt-history": (TOOLS, ["RebuildPrompt"]),
    "RebuildPrompt-hotpotqa": (QA, ["RebuildPrompt"]),
    "RebuildPrompt-papersearch": (PAPERS, ["RebuildPrompt"]),
    "RebuildPrompt-text": (HOUSE, [
        "RebuildPrompt(template='$task|$history|$observation|$commands|$problems|$step|$instructions')",
    ]),
    "RebuildPrompt-webshop": (SHOP, ["RebuildPrompt"]),
    "RewardNormalisation": (SHOP, [normalised]),
    "RewardNormalisation-by": (HOUSE, [partial(normalised, by="task_family")]),
    "SlidingWindow": (HOUSE, ["AsTool", "StripReasoning", "ChatMessages", "SlidingWindow(k=2)"]),
    "SlidingWindow-tools": (QA, ["FormatReward", "ChatMessages(reasoning='strip')", "SlidingWindow(k=1)"]),
    "ToolCallReward": (QA, ["ToolCallReward(success=0.1, error=-0.2)"]),
    "many": (TOOLS, [
        "MalformedCalls(policy='retry')", "StripReasoning", augment, "FormatReward", "StepPenalty", "ToolCallReward",
        "ChatMessages", "SlidingWindow(k=2)",
    ]),
}  # fmt: skip


def stacked(env_id: str, specs: list[Any]) -> list[Any]:
    rows = []
    for policy in (POLICIES["expert"], POLICIES["noise-0.3"], OddAndExpert()):
        rows += played(env_id, policy, 4, specs=specs, split="test")
    return rows


def budgeted(env_id: str, specs: list[str], tokens: int) -> list[Any]:
    return stacked(env_id, [*specs, f"TokenBudget(n={tokens}, tokenizer='data/tokenizers/minimind')"])


def text_game() -> gym.Env[Any, Any]:
    return wrappers.TextGame(gym.make("FrozenLake-v1", render_mode="ansi"), instructions="Reach G.")


for name, (env_id, specs) in STACKS.items():
    pin(f"wrappers/{name}", partial(stacked, env_id, specs))
pin("wrappers/TextGame", partial(played, text_game, RandomPolicy(seed=1), 10, specs=["ChatMessages"]))
for tokens in (500, 1000):
    pin(
        f"wrappers/TokenBudget-{tokens}",
        partial(budgeted, QA, ["ChatMessages", "SlidingWindow(k=3)"], tokens),
        data=True,
        needs=("transformers",),
    )
