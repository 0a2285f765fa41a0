"""What is drawn, played and written is the same byte for byte as `pinned_bytes.json` has it, a digest per name.

python tests/test_pinned_bytes.py --write [WORDS]   writes the digests of the names with any of these words, or all
python tests/test_pinned_bytes.py --show NAME       prints what a digest is made of, to compare two checkouts with diff

The environments are made by their ids and the commands called by their names: nothing here knows where a module lies.
Left out of the digests: the `episode_id` of episodes, which is drawn, and of tracebacks all but the name of the error's
class and its message.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import agent_envs
from agent_envs import wrappers
from agent_envs.policies import ExpertPolicy, RandomPolicy

PINNED = Path(__file__).with_name("pinned_bytes.json")
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Place:
    """Where a pin works."""

    folder: Path
    """A new folder of its own."""
    data: Path | None
    """Real data in released formats, for pins that need it."""


@dataclass(frozen=True)
class Pin:
    """Something that stays the same."""

    make: Callable[[Place], Any]
    """What the digest is of: bytes, or a value that JSON can hold."""
    data: bool = False
    """Whether it needs the real data."""
    needs: tuple[str, ...] = ()
    """Modules of extras that it needs."""
    hashes: bool = False
    """Whether it depends on how strings are hashed, and is made in a process of its own where that is settled."""


PINS: dict[str, Pin] = {}


def pin(name: str, make: Callable[[Place], Any], **more: Any) -> None:
    assert name not in PINS, name
    PINS[name] = Pin(make, **more)


def as_bytes(value: Any) -> bytes:
    """The bytes of a value: keys in their order, a list's entries on lines of their own."""
    if isinstance(value, bytes):
        return value
    parts = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(part, default=_plain).encode() + b"\n" for part in parts)


def _plain(value: Any) -> Any:
    """NumPy's arrays and scalars, and tuples in them, as lists and numbers."""
    return value.tolist()


# -- what every generator draws ---------------------------------------------------------------------------------------


def short(env_id: str) -> str:
    return env_id.removeprefix("AgentR1/").removesuffix("-v0")


def drawn(env_id: str, *, each: int = 50, seeds: int = 30, **kwargs: Any) -> list[Any]:
    """How to act, and what `reset` says: for the first, middle and last tasks, and for seeds."""
    env = gym.make(env_id, **kwargs).unwrapped
    count = env.num_tasks
    told = [env.instructions, env.tool_instructions, list(env.tools), count]
    told += [repr(env.observation_space), repr(env.action_space), env.metadata]
    middle = max(count // 2 - each // 2, 0)
    indices = sorted({*range(min(each, count)), *range(middle, min(middle + each, count)), *range(count)[-each:]})
    rows: list[Any] = [told]
    rows += [[index, *env.reset(options={"index": index})] for index in indices]
    rows += [[f"seed {seed}", *env.reset(seed=seed)] for seed in range(seeds)]
    env.reset(seed=2**31)
    rows += [["next", *env.reset()] for _ in range(5)]  # what one generator draws in a row
    env.close()
    return rows


def played(
    env_id: Any, policy: Any, n: int, *, specs: Sequence[Any] = (), options: Any = None, **env_kwargs: Any
) -> list[Any]:
    """Whole episodes, played one after the other."""
    episodes = agent_envs.run_episodes(
        env_id, policy, n, env_kwargs=env_kwargs, wrappers=specs, options=options, concurrency=1, progress=False
    )
    return [plain_episode(episode.to_dict()) for episode in episodes]


def plain_episode(row: dict[str, Any]) -> dict[str, Any]:
    """A recorded episode without what differs from run to run."""
    row = {key: value for key, value in row.items() if key != "episode_id"}
    if row["error"] is not None:
        row["error"] = re.sub(r"^[\w.]*\.", "", row["error"].strip().splitlines()[-1])
    return row


POLICIES: dict[str, Any] = {
    "expert": ExpertPolicy(),
    "noise-0.3": ExpertPolicy(noise=0.3, seed=1),
    "noise-1": ExpertPolicy(noise=1.0, seed=2),
    "random": RandomPolicy(seed=3),
}

for env_id in agent_envs.ENV_IDS:
    for split in SPLITS:
        pin(f"tasks/{short(env_id)}/{split}", lambda _, env_id=env_id, split=split: drawn(env_id, split=split))
        for name, policy in POLICIES.items():
            pin(
                f"episodes/{short(env_id)}/{split}/{name}",
                lambda _, env_id=env_id, split=split, policy=policy: played(env_id, policy, 12, split=split),
            )

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ALFWorld": [
        *({"size": size} for size in (1, 2, 3, 4, 5, "1-2")),
        *({"families": family} for family in (
            "look_at_obj_in_light", "pick_and_place_simple", "pick_clean_then_place_in_recep",
            "pick_cool_then_place_in_recep", "pick_heat_then_place_in_recep", "pick_two_obj_and_place",
        )),
        {"families": ["pick_and_place_simple", "pick_two_obj_and_place"], "size": 2, "split": "valid_unseen"},
        {"expert": "oracle"}, {"expert": "oracle", "split": "valid_seen"}, {"strict": True}, {"put_alias": True},
    ],
    "GSM8K": [
        *({"level": level} for level in range(1, 9)), {"level": "2-3"}, {"level": [1, 3]}, {"reward": "agentr1"},
    ],
    "GSM8KTool": [
        {"level": 8}, {"level": "1-3"}, {"tool": "check_answer"}, {"reward": "agentr1"}, {"step_limit": 3},
        *({"parser": name} for name in (
            "deepseek", "glm", "harmony", "hermes", "json", "llama", "mistral", "qwen_coder",
        )),
        {"max_parallel_calls": 1},
    ],
    "HotpotQA": [
        {"hops": 3}, {"hops": 4}, {"hops": "2-4"}, {"articles": 200}, {"articles": 3000}, {"style": "react"},
        {"style": "search_r1"}, {"style": "search_r1", "top_k": 1}, {"reward": "f1"}, {"reward": "sub_em"},
        {"reward": "qa_format"}, {"force_first_search": True}, {"max_calls": 1, "passage_chars": 80, "top_k": 2},
        {"parser": "qwen_coder"},
    ],
    "MuSiQue": [{"hops": 2}, {"hops": 4}, {"style": "react"}, {"style": "search_r1", "reward": "f1"}],
    "TwoWikiMultihopQA": [{"hops": 2}, {"hops": 4}, {"style": "react"}, {"style": "search_r1", "reward": "f1"}],
    "PaperSearch": [
        {"papers": 100}, {"papers": 5000}, {"hidden": 0.0}, {"hidden": 0.6}, {"reward": "paperscout"}, {"reward": "f1"},
        {"selector": "lexical"}, {"top_k": 3, "shown": 2, "abstract_words": 5}, {"abstract_words": 0}, {"max_calls": 1},
        {"parser": "mistral"},
    ],
    "WebShop": [
        {"mode": "text_rich"}, {"reward": "agentr1"}, {"products": 200}, {"human_goals": True}, {"human_goals": False},
        {"show_attributes": True}, {"expert": "oracle"}, {"expert": "oracle", "split": "all"}, {"tagger": "rule"},
    ],
}  # fmt: skip


def varied(env_id: str, **kwargs: Any) -> list[Any]:
    rows = drawn(env_id, each=6, seeds=4, **kwargs)
    for policy, n in (("expert", 5), ("noise-0.3", 3), ("random", 3)):
        rows += played(env_id, POLICIES[policy], n, **kwargs)
    return rows


for task, variants in VARIANTS.items():
    for kwargs in variants:
        text = ",".join(f"{key}={value}" for key, value in kwargs.items()).replace(" ", "")
        given = {"split": "test", **kwargs}
        pin(
            f"variants/{task}/{text}",
            lambda _, env_id=f"AgentR1/{task}-v0", given=given: varied(env_id, **given),
            # of several shortest plans ALFWorld's oracle takes the one that comes first in a set
            hashes=task == "ALFWorld" and given.get("expert") == "oracle",
        )


# -- odd actions, pictures of an episode, vectors ---------------------------------------------------------------------

CALL = '<tool_call>{"name": %s, "arguments": %s}</tool_call>'
ODD = [
    " ", " \n\t", "\x00\x01\x1b[2J\x7f", "é中😀\U0010ffff\u202e\ufeff", "\ud800 lone \udfff",
    "a" * 70_000, "a" * 1_000_000,
    "<tool_call>", "</tool_call>", "<tool_call>{", "<tool_call>{}</tool_call>", "<tool_call>{oops}</tool_call>",
    "<tool_call>[]</tool_call><tool_call>null</tool_call>", CALL % ('"no_such_tool"', "{}"), CALL % ("3", '"x"'),
    CALL % ('"calculator"', '{"expression": "12*7"}'), CALL % ('"calculator"', '{"expression": "1/0"}'),
    CALL % ('"calculator"', '{"expression": "2**10000"}'), CALL % ('"calculator"', '{"expresion": "2"}'),
    CALL % ('"calculator"', '{"expression": 5}'), CALL % ('"calculator"', '"{\\"expression\\": \\"7%4\\"}"'),
    CALL % ('"calculator"', '{"expression": "1"}') * 6, CALL % ('"search"', '{"query": "river"}'),
    CALL % ('"search"', '{"query": ""}'), CALL % ('"search"', '{"query": "the"}') + "\n#### 7",
    CALL % ('"expand"', '{"paper_id": "none"}'), CALL % ('"finish"', "{}"), "<tool_call>" * 1000,
    "<tool_call>" + "[" * 5000 + "</tool_call>", "<think>so", "<think>so</think>#### 12", "#### 1,234.50", "####",
    "\\boxed{", "so \\boxed{\\frac{1}{2}}", "the answer is $5.", "<answer>", "<answer>yes</answer>",
    "<think>a</think><answer> Yes. </answer>", "<search>river</search>", "<search></search>", "search[river]",
    "search[", "search[]", "lookup[river]", "finish[yes]", "click[back to search]", "click[Buy Now]",
    "search[red shoes]",
    "Search[red shoes]", "inventory", "look", "LOOK ", " examine  desk 1", "help", "go to nowhere 9", "{0} %s ${x}",
]  # fmt: skip


def odd_actions(env_id: str, **kwargs: Any) -> list[Any]:
    """What each odd action does as the first of an episode, and half of them one after the other."""
    env = gym.make(env_id, split="test", **kwargs)
    rows: list[Any] = []
    for number, action in enumerate(ODD):
        env.reset(options={"index": number})
        rows.append(list(env.step(action)))
    over = True
    for number, action in enumerate(ODD[7:] + ODD[:7]):
        if over:
            rows.append(list(env.reset(seed=number)))
        rows.append(list(env.step(action)))
        over = rows[-1][2] or rows[-1][3]
    return rows


def rendered(env_id: str, mode: str) -> list[Any]:
    env = gym.make(env_id, split="validation", render_mode=mode)
    env.reset(seed=7)
    pages, over = [env.render()], False
    while not over:
        *_, terminated, truncated, _ = env.step(env.unwrapped.expert_action())
        over = terminated or truncated
        pages.append(env.render())
    return pages


def vector(env_id: str) -> list[Any]:
    """Three environments side by side, through the ends of their episodes."""
    envs = agent_envs.make_vec(env_id, 3, wrappers=["FormatReward"], split="validation")
    rows: list[Any] = [list(envs.reset(seed=11))]
    for _ in range(14):
        rows.append(list(envs.step(tuple(env.unwrapped.expert_action() for env in envs.envs))))
        ended = np.logical_or(rows[-1][2], rows[-1][3])
        if ended.any():
            rows.append(list(envs.reset(seed=12, options={"reset_mask": ended})))
    envs.close()
    return rows


for env_id in agent_envs.ENV_IDS:
    pin(f"odd-actions/{short(env_id)}", lambda _, env_id=env_id: odd_actions(env_id))
    pin(f"vector/{short(env_id)}", lambda _, env_id=env_id: vector(env_id))
    for mode in ("ansi", *(("html",) if "WebShop" in env_id else ())):
        pin(f"render/{short(env_id)}/{mode}", lambda _, env_id=env_id, mode=mode: rendered(env_id, mode))
for style in ("react", "search_r1"):
    pin(f"odd-actions/HotpotQA/{style}", lambda _, style=style: odd_actions("AgentR1/HotpotQA-v0", style=style))
pin("odd-actions/WebShop/text_rich", lambda _: odd_actions("AgentR1/WebShop-v0", mode="text_rich"))


# -- wrappers ---------------------------------------------------------------------------------------------------------


def noted(observation: str, info: dict[str, Any]) -> str | None:
    return f"{len(observation)} characters, {info['task_id']}" if len(observation) % 2 else None


def summary(messages: Sequence[dict[str, Any]]) -> str:
    return " | ".join(f"{message['role']} {len(message['content'])}" for message in messages)


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


TOOLS, QA, HOUSE = "AgentR1/GSM8KTool-v0", "AgentR1/HotpotQA-v0", "AgentR1/ALFWorld-v0"
PAPERS, SHOP = "AgentR1/PaperSearch-v0", "AgentR1/WebShop-v0"
augment = functools.partial(wrappers.Augment, fn=noted)
summarize = functools.partial(wrappers.Summarize, fn=summary, keep=1, after=2)
STACKS: dict[str, tuple[str, list[Any]]] = {
    "AsTool": (HOUSE, ["AsTool"]),
    "AsTool-named": (SHOP, ["AsTool(name='act', parser='qwen_coder', max_calls=2)", "ChatMessages(tools='text')"]),
    "Augment": (QA, [augment, "ChatMessages"]),
    "Augment-before": (HOUSE, [functools.partial(augment, where="before", heading="", max_chars=20)]),
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
    "RewardNormalisation": (SHOP, [functools.partial(normalised, clip=2.0)]),
    "RewardNormalisation-by": (HOUSE, [functools.partial(normalised, by="task_family")]),
    "SlidingWindow": (HOUSE, ["AsTool", "StripReasoning", "ChatMessages", "SlidingWindow(k=2)"]),
    "SlidingWindow-tools": (QA, ["FormatReward", "ChatMessages(reasoning='strip')", "SlidingWindow(k=1)"]),
    "Summarize": (PAPERS, ["ChatMessages", summarize]),
    "Summarize-drop": (HOUSE, ["ChatMessages", functools.partial(summarize, fn=lambda _: "", on_error="drop")]),
    "Summarize-keep": (SHOP, ["ChatMessages", functools.partial(summarize, fn=lambda _: "", on_error="keep")]),
    "Summarize-raise": (QA, ["ChatMessages", functools.partial(summarize, fn=lambda _: "")]),
    "ToolCallReward": (QA, ["ToolCallReward(success=0.1, error=-0.2)"]),
    "many": (TOOLS, [
        "MalformedCalls(policy='retry')", "StripReasoning", augment, "FormatReward", "StepPenalty", "ToolCallReward",
        "ChatMessages", summarize,
    ]),
}  # fmt: skip


def stacked(env_id: str, specs: list[Any]) -> list[Any]:
    rows = []
    for policy in (POLICIES["expert"], POLICIES["noise-0.3"], OddAndExpert()):
        rows += played(env_id, policy, 4, specs=specs, split="test")
    return rows


def budgeted(place: Place, env_id: str, specs: list[str], tokens: int) -> list[Any]:
    budget = f"TokenBudget(n={tokens}, tokenizer={str(place.data / 'tokenizers' / 'minimind')!r})"
    return stacked(env_id, [*specs, budget])


def text_game() -> gym.Env[Any, Any]:
    return wrappers.TextGame(gym.make("FrozenLake-v1", render_mode="ansi"), instructions="Reach G.")


for name, (env_id, specs) in STACKS.items():
    pin(f"wrappers/{name}", lambda _, env_id=env_id, specs=specs: stacked(env_id, specs))
pin("wrappers/TextGame", lambda _: played(text_game, RandomPolicy(seed=1), 10, specs=["ChatMessages"]))
for tokens in (500, 1000):
    pin(
        f"wrappers/TokenBudget-{tokens}",
        lambda place, n=tokens: budgeted(place, QA, ["ChatMessages", "SlidingWindow(k=3)"], n),
        data=True,
        needs=("transformers",),
    )


# -- the test ---------------------------------------------------------------------------------------------------------


def made(name: str, data: Path | None) -> bytes:
    """What the digest of a pin is of, made in a folder of its own and without the user's own data."""
    if PINS[name].hashes and os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, __file__, "--show", name]
        settings = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(agent_envs.__file__).parents[1])}
        return subprocess.run(command, env=settings, stdout=subprocess.PIPE, check=True, timeout=300).stdout
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_ENVS_DATA", str(Path(folder) / "agent_envs_data"))
        return as_bytes(PINS[name].make(Place(Path(folder), data)))


def digest(name: str, data: Path | None) -> str:
    return hashlib.sha256(made(name, data)).hexdigest()


@pytest.mark.parametrize("name", sorted(PINS))
def test_bytes_are_what_they_were(name: str, request: pytest.FixtureRequest) -> None:
    for module in PINS[name].needs:
        pytest.importorskip(module)
    data = request.getfixturevalue("data_dir") if PINS[name].data else None
    pinned = json.loads(PINNED.read_text())
    assert name in pinned, f"no digest yet: python tests/{Path(__file__).name} --write {name}"
    assert digest(name, data) == pinned[name], f"compare: python tests/{Path(__file__).name} --show {name}"


def test_every_digest_has_its_pin() -> None:
    assert list(json.loads(PINNED.read_text())) == sorted(PINS)


def _named(words: Sequence[str]) -> Iterator[str]:
    return (name for name in sorted(PINS) if not words or any(word in name for word in words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", metavar="NAME")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    data = Path(os.environ.get("AGENT_ENVS_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    if arguments.show:
        sys.stdout.buffer.write(made(arguments.show, data))
    elif arguments.write:
        pinned = json.loads(PINNED.read_text()) if PINNED.exists() else {}
        pinned.update({name: digest(name, data) for name in _named(arguments.words)})
        kept = {name: pinned[name] for name in sorted(pinned) if name in PINS}
        PINNED.write_text(json.dumps(kept, indent=0) + "\n")
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
