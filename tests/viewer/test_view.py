"""Episodes as a page, as a table and as text: everything in them is data.

Behaviours pinned here:
1. The page holds every episode, opens in a browser, and shows the one that is chosen with thought, call and result.
2. Scripts, tags, comments and control characters in episodes are inert: in the page, the fragment, the terminal.
3. A broken line names its file and place; the cut-off last line of a killed run is left out.
4. Tables have a row per episode or per step.
5. Whole prompts are held once, not once a step; calls are found in every format; NaN does not break the page.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.episodes.record import Episode, Step, StopReason, write_episodes
from agent_envs.messages import ToolCall
from agent_envs.parsers import PARSERS, get_parser
from agent_envs.policies import ExpertPolicy
from agent_envs.viewer.shape import Numbered, Origin
from agent_envs.viewer.write import write_view

CHAT = [
    {"role": "system", "content": "Go."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "I add."},
    {"role": "tool", "name": "calculator", "content": "2"},
]
USED = Step("o", "a", 0.0, False, True, usage={"prompt_tokens": 70, "completion_tokens": 9})
OWN = "document.title='owned'"
EVIL = f'<script>{OWN}</script></script><!-- <script> <img src=x onerror="{OWN}"> \x1b[31m\x00 &lt;'


def _episode(name: str = "e0", observation: Any = "look", action: str = "act", **changes: Any) -> Episode:
    info = {
        "success": True,
        "score": 1.0,
        "reward_components": {"task": 1.0},
        "invalid_action": False,
        "response_mask": [1, 0],
    }
    step = Step(observation, action, 1.0, True, False, info, (1, 2, 3), (4, 5), (-0.5, -0.25))
    values: dict[str, Any] = {
        "env_id": "AgentR1/GSM8K-v0", "episode_id": name, "group_id": "g", "seed": None, "index": 3,
        "instructions": "Do.", "tools": (), "reset_info": {"task_id": f"train/{name}"}, "steps": (step,),
        "final_observation": "end", "stop_reason": StopReason.TERMINATED,
    }  # fmt: skip
    return Episode(**{**values, **changes})


def _write(episodes: Iterable[Episode], page: Path, **options: Any) -> int:
    origin = Origin(page.with_name("mine.jsonl"), 0, "mine", "", -1)
    return write_view((Numbered(e.to_dict(), origin, k) for k, e in enumerate(episodes, 1)), page, **options)


def _contents(page: Path) -> tuple[dict[str, Any], list[list[Any]], list[dict[str, Any]]]:
    """What the page knows, the rows of its list, and its episodes."""
    text = page.read_text(encoding="utf-8")

    def lines(name: str) -> list[Any]:
        packed = re.findall(rf'<script type="text/plain" id="{name}\d+">([^<]*)</script>', text)
        return [json.loads(x) for one in packed for x in zlib.decompress(base64.b64decode(one)).decode().split("\n")]

    meta = re.search(r'id="meta">([^<]*)</script>', text)
    assert meta is not None
    return json.loads(meta[1]), lines("rows"), lines("chunk")


def test_the_page_holds_every_episode(tmp_path, capsys):
    episodes = agent_envs.run_episodes("AgentR1/GSM8KTool-v0", ExpertPolicy(), 45, progress=False)
    (tmp_path / "run").mkdir()
    write_episodes(tmp_path / "run" / "a.jsonl", episodes[:40])
    write_episodes(tmp_path / "run" / "b.jsonl", episodes[40:])
    out = tmp_path / "page.html"
    assert main(["view", str(tmp_path / "run"), "--out", str(out), "--title", "Mine"]) == 0
    assert capsys.readouterr().out.strip() == f"45 episodes in {out}"
    meta, rows, shown = _contents(out)
    assert meta["title"] == "Mine" and meta["count"] == len(rows) == len(shown) == 45
    for episode, record in zip(episodes, shown, strict=True):
        assert [step["action"] for step in record["steps"]] == [step.action for step in episode.steps]
        calls = [call["name"] for call in record["steps"][0].get("calls", ())]
        assert calls == (["calculator"] if len(episode.steps) > 1 else [])


def test_a_page_replaces_a_page_and_nothing_else(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    monkeypatch.chdir(tmp_path)
    write_episodes("episodes.jsonl", [_episode()])
    assert main(["view", "episodes.jsonl"]) == 0 and not opened
    write_episodes("more.jsonl", [_episode("e1"), _episode("e2")])
    assert main(["view", "more.jsonl", "--open"]) == 0
    assert opened == [(tmp_path / "episodes.html").as_uri()] and "2 episodes" in capsys.readouterr().out
    Path("mine.html").write_text("<!doctype html><p>mine")
    assert main(["view", "more.jsonl", "--out", "mine.html"]) == 2
    assert Path("mine.html").read_text() == "<!doctype html><p>mine"


def test_whole_prompts_are_kept_once(tmp_path):
    wrappers = ["ChatMessages", "SlidingWindow(k=2)"]
    for stack in (wrappers[:1], wrappers):
        [episode] = agent_envs.run_episodes("AgentR1/ALFWorld-v0", ExpertPolicy(), 1, wrappers=stack, progress=False)
        _write([episode], tmp_path / "page.html")
        [record] = _contents(tmp_path / "page.html")[2]
        prompts: list[list[Any]] = [[]]
        for prompt in record["prompts"]:
            prompts.append([*prompts[-1][: prompt["kept"]], *prompt["new"]])
        assert prompts[1:] == [*(step.observation for step in episode.steps), episode.final_observation]
        assert max(len(prompt["new"]) for prompt in record["prompts"][1:]) <= (2 if stack is not wrappers else 5)
        assert episode.to_html().count("[system]") == 1


@pytest.mark.parametrize("name", PARSERS)
def test_calls_are_found_in_every_format(name, tmp_path):
    fixed = {"fenced_python": ("python", "code"), "react": ("lookup", "keyword"), "retool": ("python", "code")}
    tool, argument = fixed.get(name, ("search", "query"))
    text = get_parser(name).format(ToolCall(tool, {argument: "x"}))
    spec: Any = {"type": "function", "function": {"name": tool, "description": "", "parameters": {}}}
    _write([_episode(action=text, tools=(spec,))], tmp_path / "page.html")
    [call] = _contents(tmp_path / "page.html")[2][0]["steps"][0]["calls"]
    assert call["name"] == tool and call["arguments"][argument].strip() == "x"


def test_broken_calls_and_words_alone_are_told_apart(tmp_path):
    for text, calls in [
        ("<tool_call>{oops", 1),
        ("[TOOL_CALLS]oops", 1),
        ("<think>I look.</think>go north", 0),
        ("search[red lamp]", None),  # WebShop's command, not ReAct's
        ("```python\nprint(1)\n```", None),  # there is no such tool
        ('{"answer": 4}', None),
        ("<answer>4</answer>", None),
    ]:
        _write([_episode(action=text)], tmp_path / "page.html")
        found = _contents(tmp_path / "page.html")[2][0]["steps"][0].get("calls")
        assert (None if found is None else len(found)) == calls, text


def test_numbers_that_are_not_finite_reach_the_browser_by_name(tmp_path):
    step = Step("o", "a", nan, True, False, {"reward_components": {"x": inf}}, (1,), (2,), (-inf,))
    _write([_episode(steps=(step,))], tmp_path / "page.html")
    assert "NaN" not in (text := json.dumps(_contents(tmp_path / "page.html"))) and "Infinity" not in text
    _, [row], [record] = _contents(tmp_path / "page.html")
    assert "nan" in row and record["steps"][0]["response_logprobs"] == ["-inf"]


def test_a_tokenizer_shows_sampled_tokens_as_text(tmp_path, capsys):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "<b>go</b>": 4, "north": 5}, unk_token="?"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "words")
    write_episodes(tmp_path / "a.jsonl", [_episode()])
    view = ["view", str(tmp_path / "a.jsonl"), "--force", "--out", str(tmp_path / "page.html"), "--tokenizer"]
    assert main([*view, str(tmp_path / "words")]) == 0
    [record] = _contents(tmp_path / "page.html")[2]
    assert record["steps"][0]["pieces"] == ["<b>go</b>", "north"] and record["steps"][0]["prompt_ids"] == {
        "kept": 0,
        "new": [1, 2, 3],
    }
    assert main([*view, str(tmp_path)]) == 2
    assert "has no Hugging Face tokenizer" in capsys.readouterr().err


def test_a_browser_shows_the_chosen_episode_and_runs_nothing_of_it(tmp_path, browser):
    thought = '<think>hidden</think>I add.<tool_call>{"name": "calculator", "arguments": {"e": "1+1"}}</tool_call>'
    nothing = replace(_episode().steps[0], reward=nan, response_logprobs=(-inf, -0.25))
    episodes = [
        _episode("plain", action=thought, observation=CHAT[:2], final_observation=CHAT, seed=1 << 60),
        _episode(EVIL, observation=EVIL, action=EVIL + "\u202e", reset_info={"task_id": EVIL}, error=EVIL, env_id=EVIL),
        _episode("long", observation="x" * 1_000_000),
        _episode("broken", steps=(USED, nothing)),
    ]
    page = tmp_path / "page.html"
    _write(episodes, page, title=EVIL)
    assert "NaN" not in page.read_text(encoding="utf-8")
    shown = []
    for number in range(4):
        browser.open(f"{page.as_uri()}#{number}")
        assert browser.run("return document.title") != "owned" and browser.problems() == []
        shown.append(browser.run("return document.getElementById('episode').innerHTML"))
    plain, evil, long, broken = shown
    assert browser.text("#totals") == "4 of 4 episodes, 100.0 % solved, mean return NaN"
    assert ">hidden</pre>" in plain and "call: calculator" in plain and ">e: 1+1</pre>" in plain and "task 1" in plain
    assert "70 prompt tokens, 9 sampled tokens" in broken and "reward nan" in broken
    wanted = ["prompt \u00b7 system", ">Go.<", "user", ">1+1?<", ">result \u00b7 tool \u00b7 calculator<", ">2<"]
    assert re.search(".*?".join(map(re.escape, wanted)), plain) and str(1 << 60) in plain
    assert "3 prompt tokens, 2 sampled tokens, 1 trained" in plain
    assert "<img" not in evil and "<script" not in evil
    assert "&lt;script&gt;" in evil and "\u241b[31m\u2400" in evil and "\\u202e" in evil
    assert "show all 1000000 characters" in long and "x" * 20_001 not in long


def test_fragments_and_tables_in_the_terminal_are_inert():
    episode = _episode(observation=EVIL, action=EVIL, final_observation=EVIL, error=EVIL, env_id=EVIL, group_id=EVIL)
    page = episode.to_html()
    assert "<script" not in page and "<img" not in page and "\x1b" not in page
    shown = repr(_episode(observation=EVIL, action="one\ntwo " * 40))
    assert "\x1b" not in shown and "\x00" not in shown
    assert "[tool] 2" in repr(_episode(observation=CHAT)) and "step" in repr(_episode(observation=[]))
    lines = shown.splitlines()
    assert lines[0] == "Episode AgentR1/GSM8K-v0 g: 1 step, terminated, return 1.000, solved"
    assert len(lines) == 3 and lines[2].endswith("...") and len(lines[2]) < 110


def test_broken_files_are_named_and_a_cut_off_line_is_left_out(tmp_path, capsys):
    good = _episode().to_json()
    out = tmp_path / "page.html"
    for text, message in [
        (f"{good}\nno json\n", "a.jsonl, line 2: not valid JSON"),
        (good.replace('"reset_info"', '"reset"') + "\n", "a.jsonl, line 1: the episode lacks a field"),
    ]:
        (tmp_path / "a.jsonl").write_text(text)
        assert main(["view", str(tmp_path / "a.jsonl"), "--out", str(out)]) == 2
        assert message in capsys.readouterr().err and not out.exists()
    (tmp_path / "a.jsonl").write_text(f"{good}\n{good[:50]}")
    assert main(["view", str(tmp_path / "a.jsonl"), "--out", str(out)]) == 0
    assert len(_contents(out)[2]) == 1
    assert main(["view", str(tmp_path / "none.jsonl")]) == 2
    (tmp_path / "torn.jsonl").write_text(good[:50])
    assert main(["view", str(tmp_path / "torn.jsonl"), "--out", str(out), "--force"]) == 2
    assert "no complete episode yet" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["view", str(tmp_path / "empty")]) == 2
    assert "no .jsonl file of episodes" in capsys.readouterr().err


def test_packed_files_and_bytes_that_are_no_text(tmp_path, capsys):
    (tmp_path / "episodes").mkdir()
    good = _episode().to_json().encode()
    (tmp_path / "episodes" / "a.jsonl.gz").write_bytes(gzip.compress(good + b"\n"))
    (tmp_path / "b.jsonl").write_bytes(good.replace(b"look", b"l\xffok") + b"\n")
    (tmp_path / "starts.jsonl").write_text('{"step": 1}\n')  # neither this nor metrics.jsonl holds episodes
    out = tmp_path / "page.html"
    assert main(["view", str(tmp_path), "--out", str(out)]) == 0
    assert [record["prompts"][0]["new"][0]["content"] for record in _contents(out)[2]] == ["l\ufffdok", "look"]
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(good)[:-9])
    assert main(["view", str(tmp_path / "torn.jsonl.gz"), "--out", str(out), "--force"]) == 2
    assert "torn.jsonl.gz cannot be read" in capsys.readouterr().err


def test_frames_have_a_row_per_episode_or_per_step():
    pytest.importorskip("pandas")
    episodes = agent_envs.run_episodes("AgentR1/GSM8KTool-v0", ExpertPolicy(), 5, progress=False)
    frame = agent_envs.episodes_to_frame(episodes)
    assert frame["success"].all() and list(frame["steps"]) == [len(e.steps) for e in episodes]
    steps = agent_envs.episodes_to_frame([*episodes, _episode()], steps=True)
    assert len(steps) == sum(len(e.steps) for e in episodes) + 1
    assert steps["reward/task"].iloc[-1] == 1.0 and not steps["reward/task"].isna().any()
    assert len(agent_envs.episodes_to_frame([])) == 0
