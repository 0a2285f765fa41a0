"""What generators draw, and what policies and environments make of it."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import agent_envs
from agent_envs.policies import ExpertPolicy, RandomPolicy
from pinned.pins import pin

TOOLS, QA, HOUSE = "AgentR1/GSM8KTool-v0", "AgentR1/HotpotQA-v0", "AgentR1/ALFWorld-v0"
PAPERS, SHOP = "AgentR1/PaperSearch-v0", "AgentR1/WebShop-v0"

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
        env_id,
        policy,
        n,
        env_kwargs=env_kwargs,
        wrappers=specs,
        options=options,
        concurrency=1,
        on_error="record",
        progress=False,
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

for env_id in agent_envs.ENV_IDS:  # `many` below has the split for training
    for split in ("validation", "test"):
        pin(f"tasks/{short(env_id)}/{split}", partial(drawn, env_id, split=split))
        for name, policy in POLICIES.items():
            make = partial(played, env_id, policy, 12, split=split)
            pin(f"episodes/{short(env_id)}/{split}/{name}", make, slow=split == "validation")

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
        {"level": 8}, {"level": "1-3"}, {"tool": "check_answer"}, {"reward": "agentr1"},
        *({"parser": name} for name in (
            "deepseek", "glm", "harmony", "hermes", "json", "llama", "mistral", "qwen_coder",
        )),
        {"max_parallel_calls": 1},
    ],
    "GSM8KCode": [{"style": "retool"}, {"style": "mathtir"}, {"level": 8}],
    "MathCode": [
        {"style": "retool", "reward": "released"}, {"style": "mathtir"}, {"level": 5}, {"families": "dates,dice"},
    ],
    "TableQA": [{"style": "retool"}, {"level": 1}, {"level": 5}],
    "HelpDesk": [
        {"level": 1, "talk": "plain"}, {"level": 8}, {"domains": "bicycle_hire", "reward": "progress"},
        {"split": "twins"}, {"split": "new", "level": "4-6"},
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
        {"show_attributes": True}, {"tagger": "rule"},
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
        pin(f"variants/{task}/{text}", partial(varied, f"AgentR1/{task}-v0", **given))


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
    pin(f"odd-actions/{short(env_id)}", partial(odd_actions, env_id))
    pin(f"vector/{short(env_id)}", partial(vector, env_id))
    for mode in ("ansi", *(("html",) if "WebShop" in env_id else ())):
        pin(f"render/{short(env_id)}/{mode}", partial(rendered, env_id, mode))
for style in ("react", "search_r1"):
    pin(f"odd-actions/HotpotQA/{style}", partial(odd_actions, QA, style=style))
pin("odd-actions/WebShop/text_rich", partial(odd_actions, SHOP, mode="text_rich"))

# -- many of each -----------------------------------------------------------------------------------------------------


def many(env_id: str, split: str) -> list[Any]:
    rows = drawn(env_id, each=700, seeds=600, split=split)
    for policy in POLICIES.values():
        rows += played(env_id, policy, 100, split=split)
    return rows


for env_id in agent_envs.ENV_IDS:  # the other splits draw from the same generator
    pin(f"many/{short(env_id)}/train", partial(many, env_id, "train"), slow=True)
