"""Real data in released formats: as it is played, and as `agentr1 prepare` places it."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs import ToolCall
from agent_envs.parsers import PARSERS, get_parser
from pinned.pins import pin, ran, written
from pinned.play import CALL, HOUSE, ODD, PAPERS, POLICIES, QA, SHOP, TOOLS, drawn, played

REAL: dict[str, tuple[str, dict[str, Any]]] = {
    "gsm8k": ("AgentR1/GSM8K-v0", {"data": "data/gsm8k/train_2000.jsonl", "split": "all"}),
    "gsm8k-tool": (TOOLS, {"data": "data/gsm8k/train_2000.jsonl", "split": "all"}),
    "alfworld": (HOUSE, {"data": "data/alfworld/json_2.1.1", "split": "valid_train"}),
    "alfworld-oracle": (HOUSE, {"data": "data/alfworld/json_2.1.1", "split": "valid_train", "expert": "oracle"}),
    "alfworld-put_alias": (HOUSE, {"data": "data/alfworld/json_2.1.1", "split": "valid_train", "put_alias": True}),
    "webshop": (SHOP, {"data": "data/webshop", "split": "all", "tagger": "rule"}),
    "webshop-goals": (SHOP, {"data": "data/webshop", "split": "all", "tagger": "rule", "human_goals": False}),
    "webshop-synthetic": (SHOP, {"data": "data/webshop_synthetic", "split": "train", "mode": "text_rich"}),
    "webshop-given": (SHOP, {
        "data": "data/webshop_synthetic", "split": "test", "tagger": "rule", "human_goals": False,
        "prices": "data/webshop_synthetic/prices_seed0.json", "goals": "data/webshop_synthetic/goals_synth_seed0.jsonl",
    }),
}  # fmt: skip


def real(env_id: str, **kwargs: Any) -> list[Any]:
    """Every row as it is met, and the expert's episodes on the first of them."""
    env = gym.make(env_id, **kwargs)
    count = env.unwrapped.num_tasks
    rows = [list(env.reset(options={"index": index})) for index in range(min(count, 2000))]
    options = [{"index": index} for index in range(min(count, 40))]
    for policy in ("expert", "noise-0.3"):
        rows += played(env_id, POLICIES[policy], len(options), options=options, **kwargs)
    return rows


def real_questions(env_id: str, path: str) -> list[Any]:
    """Every question, what a search for it finds, and what right and wrong answers earn in each style."""
    answers = [row["answer"] for row in json.loads(Path(path).read_text())]
    rows: list[Any] = []
    for style, search, answer in (
        ("tool", CALL % ('"search"', '{"query": %s}'), "<answer>%s</answer>"),
        ("react", "search[%s]", "finish[%s]"),
        ("search_r1", "<search>%s</search>", "<answer>%s</answer>"),
    ):
        env = gym.make(env_id, data=path, split="all", style=style, reward="f1")
        for index, gold in enumerate(answers):
            question, info = env.reset(options={"index": index})
            rows.append([question, info])
            if index % 4 == 0:
                rows.append(list(env.step(search % (json.dumps(question) if style == "tool" else question))))
            rows.append(list(env.step(answer % (gold if index % 5 else gold.split()[0]))))
    return rows


def real_queries(path: str, **kwargs: Any) -> list[Any]:
    """Every query, and what a search for it and an expansion find."""
    env = gym.make(PAPERS, data=path, split="all", **kwargs)
    rows: list[Any] = []
    for index in range(env.unwrapped.num_tasks):
        query, info = env.reset(options={"index": index})
        rows.append([query, info])
        if index % 5 == 0:
            step = env.step(env.unwrapped.format_call("search", {"query": query}))
            found = [paper["id"] for paper in step[4]["found"]]
            rows.append(list(step))
            rows.append(list(env.step(env.unwrapped.format_call("expand", {"paper_id": found[0] if found else "x"}))))
            rows.append(list(env.step(env.unwrapped.format_call("finish", {}))))
    return rows


def traced(name: str, **kwargs: Any) -> list[Any]:
    """A trace of the original shop, played again."""
    folder = "data/webshop_synthetic"
    env = gym.make(SHOP, data=folder, split="all", tagger="rule", max_episode_steps=-1, **kwargs)
    rows: list[Any] = []
    for line in Path(f"{folder}/trace_{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        first = row["action"] is None
        rows.append(list(env.reset(options={"goal": row["goal"]}) if first else env.step(row["action"])))
    return rows


def formatted(name: str) -> list[Any]:
    """Real calls as a format writes them, and what it reads of those and of odd texts."""
    parser = get_parser(name)
    calls = [json.loads(line) for line in Path("data/toolcalls/openai_tool_calls_300.jsonl").read_text().splitlines()]
    texts, rows = list(ODD), [parser.describe()]
    for call in calls:
        try:
            texts.append(parser.format(ToolCall(call["name"], json.loads(call["arguments"]))))
        except ValueError as e:
            rows.append(str(e))
    return rows + [[text, dataclasses.asdict(parser.parse(text))] for text in texts]


def prepared(task: str, source: str, env_id: str, **kwargs: Any) -> list[Any]:
    """What `agentr1 prepare` places, and its first tasks."""
    rows = [ran("prepare", task, "--from", f"data/{source}"), *written("agent_envs_data")]
    return rows + drawn(env_id, each=3, seeds=2, data="official", **kwargs)


for name, (env_id, kwargs) in REAL.items():
    pin(f"real/{name}", partial(real, env_id, **kwargs), data=True)
for name, env_id, path in (
    ("hotpotqa", QA, "data/hotpotqa/hotpot_train_distractor_100.json"),
    ("musique", "AgentR1/MuSiQue-v0", "data/musique/musique_train_40.json"),
):
    pin(f"real/{name}", partial(real_questions, env_id, path), data=True)
for name, kwargs in {
    "papersearch/autoscholar": {"path": "AutoScholarQuery_300.jsonl", "corpus": "data/papersearch/unarxive_15.jsonl"},
    "papersearch/autoscholar-lexical": {"path": "AutoScholarQuery_300.jsonl", "selector": "lexical"},
    "papersearch/spar": {"path": "spar_bench_15.jsonl"},
    "papersearch/spar-lexical": {"path": "spar_bench_15.jsonl", "selector": "lexical", "reward": "paperscout"},
}.items():
    path = f"data/papersearch/{kwargs.pop('path')}"
    pin(f"real/{name}", partial(real_queries, path, **kwargs), data=True)
for name, kwargs in {
    "human_text": {},
    "human_text_rich": {"mode": "text_rich"},
    "synth_text": {"human_goals": False},
}.items():
    pin(f"real/webshop-trace/{name}", partial(traced, name, **kwargs), data=True)
for name in sorted(PARSERS):
    pin(f"parsers/{name}", partial(formatted, name), data=True)
for task, source, env_id, kwargs in (
    ("alfworld", "alfworld/json_2.1.1", HOUSE, {"split": "valid_train"}),
    ("gsm8k", "gsm8k", TOOLS, {}),
    ("hotpotqa", "hotpotqa", QA, {}),
    ("musique", "musique", "AgentR1/MuSiQue-v0", {}),
    ("papersearch", "papersearch", PAPERS, {"split": "spar_bench_15"}),
    ("webshop", "webshop", SHOP, {"split": "all", "tagger": "rule"}),
):
    pin(f"files/prepare/{task}", partial(prepared, task, source, env_id, **kwargs), data=True, needs=("pyarrow",))
