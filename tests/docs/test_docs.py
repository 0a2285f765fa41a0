"""The documentation is right: its blocks run, its commands exist, its links work, generated pages are current."""

from __future__ import annotations

import argparse
import dataclasses
import doctest
import importlib.util
import re
import shlex
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.cli.main import command_module
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.wrapping.order import REFUSED, Place
from agent_envs.wrapping.specs import wrapper_names


def test_the_environments_page_is_current(root):
    spec = importlib.util.spec_from_file_location("generate_docs", root / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.PAGE.read_text(encoding="utf-8") == generate.page(), "run: python docs/generate.py"


def test_the_list_of_what_can_be_implemented_is_right(root):
    text = (root / "docs" / "writing_an_environment.md").read_text(encoding="utf-8")
    for base in (TextEnv, ToolEnv):
        table = text.split(f"| of `{base.__name__}` |")[1].split("\n\n")[0]
        for member in re.findall(r"^\| `(\w+)(?:\(.*?\))?` ", table, flags=re.MULTILINE):
            assert hasattr(base, member), f"{base.__name__} has no {member}"
    fields = [f.name for f in dataclasses.fields(Outcome)]
    assert all(f"`{field}`" in text or field == "observation" for field in fields)


def _pages(root):
    return [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").glob("*.md"))]


def test_links_within_the_pages_lead_somewhere(root):
    anchors = {}
    for page in _pages(root):
        heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        anchors[page.resolve()] = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    for page in _pages(root):
        for target in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page.resolve()
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors[there], f"{page.name}: {target}"


def test_every_page_is_reached_from_the_readme(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    assert not [page.name for page in (root / "docs").glob("*.md") if f"](docs/{page.name})" not in text]
    pictures = {path.relative_to(root).as_posix() for path in (root / "docs" / "images").iterdir()}
    shown = {
        (page.parent / path).resolve().relative_to(root.resolve()).as_posix()
        for page in _pages(root)
        for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert pictures == shown


def test_every_command_a_page_shows_is_one(root):
    """Options are spelled as the commands spell them; `...` and what a shell would fill in are left out."""
    seen = set()
    for page in _pages(root):
        blocks = re.findall(
            r"^```(?:bash|console|text)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        for line in "".join(blocks).replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )?agentr1 (.*)", line)
            command = shlex.split(found[1], comments=True) if found else ["..."]
            if "..." in command or {"|", "COMMAND", "agentr1"} & set(command):
                continue
            seen.add(command[0])
            parser = argparse.ArgumentParser()
            command_module(command[0]).add_arguments(parser)
            try:
                parser.parse_intermixed_args(command[1:])
            except SystemExit:
                pytest.fail(f"{page.name}: {line}")
    assert seen >= {
        "bench",
        "chat",
        "demos",
        "eval",
        "list",
        "new-task",
        "play",
        "plot",
        "record",
        "rescore",
        "serve",
        "train",
    }


def _played(env_id, index, **kwargs):
    """What `render()` shows of an episode of the expert."""
    env = gym.make(env_id, split="test", render_mode="ansi", **kwargs)
    env.reset(options={"index": index})
    ended = False
    while not ended:
        *_, terminated, truncated, info = env.step(env.unwrapped.expert_action())
        ended = terminated or truncated
    assert info["success"]
    return env.render()


def test_the_episodes_of_the_tasks_page_are_played(root):
    """Those of question answering and paper search are in their own tests."""
    text = (root / "docs" / "tasks.md").read_text(encoding="utf-8")
    for shown in (_played("AgentR1/GSM8KTool-v0", 2, level=2), _played("AgentR1/ALFWorld-v0", 235, size=1)):
        assert f"```text\n{shown}\n```" in text
    shop = _played("AgentR1/WebShop-v0", 101, mode="text_rich")
    last = text[text.index("> click[4 pack]") : text.index("```", text.index("> click[4 pack]"))]
    assert last in shop and "Thank you for shopping with us!" in last


FENCE = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)

# Pages whose blocks have tests of their own: the tutorials build files block by block, the others train or need a
# server.
FOLLOWED = {
    "tutorial_first_task.md": "tests/docs/test_tutorials.py",
    "tutorial_tools_and_rewards.md": "tests/docs/test_tutorials.py",
    "recording.md": "tests/recording/test_record.py",
    "torch_loop.md": "tests/adapters/test_torch_loop.py",
    "trl.md": "tests/adapters/test_trl.py",
}


def _python_blocks():
    blocks = []
    root = Path(__file__).parents[2]
    for page in _pages(root):
        if page.name in FOLLOWED:
            continue
        for number, block in enumerate(FENCE.findall(page.read_text(encoding="utf-8"))):
            blocks.append(pytest.param(page, block, id=f"{page.name}-{number}"))
    return blocks


@pytest.mark.parametrize(("page", "block"), _python_blocks())
def test_every_block_of_python_runs_by_itself(page, block, tmp_path, monkeypatch, capsys):
    """Each runs in an empty folder but for a tiny model, ``models/mine``; skipped if its extra is missing."""
    monkeypatch.chdir(tmp_path)
    if "verifiers" in block:
        pytest.importorskip("verifiers")
        importlib.import_module("agent_envs.adapters.verifiers")
        monkeypatch.setattr("signal.signal", lambda *_: None)  # set for every environment, and at exit
        monkeypatch.setattr("atexit.register", lambda f, *_: f)
    if "models/mine" in block:
        _tiny_model(tmp_path / "models" / "mine")
    names = {"__name__": "page"}
    try:
        if block.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), 0)
            failed = doctest.DocTestRunner().run(example).failed
            assert not failed, capsys.readouterr().out
        else:
            exec(compile(block, page.name, "exec"), names)
    except ImportError as e:  # MissingExtraError too
        pytest.skip(f"needs an extra: {e}")
    finally:
        if "skyrl_gym" in sys.modules:
            sys.modules["skyrl_gym"].registry.pop("agentr1", None)


def test_pages_whose_blocks_are_tested_elsewhere_are_named_there(root):
    for page, test in FOLLOWED.items():
        assert Path(page).stem in (root / test).read_text(encoding="utf-8"), f"{test} does not read {page}"


def _tiny_model(folder):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from agent_envs.adapters.tiny.model import build_model, save_model
    from agent_envs.adapters.tiny.tokenizer import build_tokenizer

    tokenizer = build_tokenizer(["user assistant system 0123456789"])
    save_model(build_model(tokenizer), tokenizer, folder)


def test_the_wrappers_page_names_every_wrapper_in_order(root):
    text = (root / "docs" / "wrappers.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(\w+)", text))
    assert {*wrapper_names(), *REFUSED} <= names
    order = text.index("## The order of wrappers")
    placed = {name: getattr(agent_envs.wrappers, name).place for name in wrapper_names()}
    positions = {name: text.index(f"`{name}", order) for name, place in placed.items() if place < Place.REWARD}
    assert sorted(positions, key=positions.__getitem__) == sorted(positions, key=lambda name: (placed[name], name))


def test_the_policies_page_names_every_policy(root):
    from agent_envs import policies

    text = (root / "docs" / "policies.md").read_text(encoding="utf-8")
    names = {f"`{name}`" for name in policies.__all__ if name.endswith("Policy") and name != "Policy"}
    assert names <= set(re.findall(r"`\w+`", text))


@pytest.mark.parametrize("page", ["README.md", "docs/evaluation.md"])
def test_evaluations_print_what_the_pages_show(root, page, tmp_path, monkeypatch, capsys):
    from agent_envs.cli.main import main

    text = (root / page).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```console\n\$ agentr1 ((?:eval|compare) .*)\n((?:.*\n)*?)^```", text, flags=re.MULTILINE)
    assert blocks
    for command, shown in blocks:
        assert main(shlex.split(command)) == 0
        said = capsys.readouterr().out
        untimed = [[line for line in some.splitlines() if not line.startswith("time ")] for some in (said, shown)]
        assert untimed[0] == untimed[1]
