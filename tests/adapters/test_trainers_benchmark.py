"""The trainers beside each other.

1. the figures of an arm are those of its iterations but the first: spans, rows and passes that it wrote down
2. the template that a model gets says what it would read without one, word for word
3. an arm that is done is not run again; one that fails leaves its reason, and the file is written after each
"""

from __future__ import annotations

import json
import sys

import gymnasium as gym
import pytest

pytest.importorskip("transformers")

from agent_envs.adapters.tiny.model import base_folder
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.builder import PromptBuilder
from benchmarks import arms, trainers


def test_figures_are_those_of_the_iterations_but_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv(arms.OUT, str(tmp_path))
    for number, begin in ((1, 0.0), (2, 10.0), (3, 20.0)):
        arms.note("spans.jsonl", what="play", number=number, begin=begin, end=begin + 4)
        arms.note("spans.jsonl", what="iteration", number=number, begin=begin, end=begin + 10)
        arms.rows(number, [[5, 6, 7], [5, 6, 8, 9]], sampled=3)  # 5 tokens as a tree
        arms.note("passes.jsonl", time=begin + 6, tokens=4 * number)
    samples = [(0.0, 0.0, 1.0), (10.0, 100.0, 1.0), (30.0, 120.0, 2.5)]  # one processor second a second
    found = arms.figures(tmp_path, samples)
    assert (found["iterations"], found["memory_gb"]) == (2, 2.5)
    assert (found["seconds"], found["play"], found["update"]) == (10.0, 4.0, 6.0)
    assert (found["cpu_seconds"], found["cpu_play"], found["cpu_update"]) == (10.0, 4.0, 6.0)
    assert (found["sampled_tokens"], found["unique_tokens"], found["processed_tokens"]) == (3.0, 5.0, 10.0)
    assert found["processed_per_unique"] == 2.0
    lines = arms.table(
        {"a": found, "b": {**found, "cpu_seconds": 25.0}, "c": {"failed": "no memory"}}, "a"
    ).splitlines()
    assert "| 1.00 | 3 | 2.00 | 2.5 |" in lines[2] and "| 2.50 |" in lines[3] and lines[4] == "| c | no memory |"


def test_the_template_says_what_is_said_without_one():
    bare, given = load_tokenizer(str(base_folder())), load_tokenizer(str(base_folder()))
    bare.chat_template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}"
    )
    given.chat_template = trainers.TEMPLATE
    env = gym.make(trainers.ENV, **trainers.KWARGS)
    question, _ = env.reset(options={"index": 0})
    messages = [{"role": "system", "content": env.unwrapped.instructions}, {"role": "user", "content": question}]
    call, results = env.unwrapped.expert_action(), [{"role": "tool", "content": text} for text in ("6", "60")]
    texts = []
    for tokenizer in (bare, given):
        builder = PromptBuilder.of_env(env, tokenizer)
        start = builder.start(messages)
        texts.append(tokenizer.decode(builder.extend(start, builder.response(call), results)))
    assert texts[0] == texts[1] and "calculator" in texts[0]


@pytest.mark.slow
def test_an_arm_that_is_done_is_not_run_again(tmp_path, root, monkeypatch, capsys):
    monkeypatch.chdir(root)  # where the processes of arms are started
    path = tmp_path / "results.json"

    def run(*more):
        words = ["--model", "tiny-base", "--out", str(tmp_path), "--iterations", "2", "--arms", "loop, tree", *more]
        monkeypatch.setattr(sys, "argv", ["trainers", *words])
        trainers.main()
        return capsys.readouterr().out, json.loads(path.read_text())

    said, result = run()
    found = result["arms"]["loop, tree"]
    assert said.startswith("loop, tree {")
    assert 1 <= found["processed_per_unique"] < 1.1 and found["sampled_tokens"] > 0 and found["memory_gb"] > 0.1
    assert 0 < found["cpu_play"] < found["cpu_seconds"] and found["play"] < found["seconds"]
    said, again = run()
    assert said.startswith("| trainer |") and again == result
    with pytest.raises(SystemExit, match="give another --out"):
        run("--threads", "2")
    path.write_text(json.dumps({**result, "arms": {"loop, tree": {"failed": "killed"}}}))
    assert run("--minutes", "0.001")[1]["arms"]["loop, tree"] == {"failed": "not done after 0.001 minutes"}
