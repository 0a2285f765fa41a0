"""What the pages show runs, and the generated page is the current one."""

from __future__ import annotations

import argparse
import dataclasses
import doctest
import importlib.util
import re
import shlex

import gymnasium as gym
import pytest

from agent_envs.cli.main import _COMMANDS
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.wrapping.order import ORDER, REFUSED
from agent_envs.wrapping.specs import WRAPPERS


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
    assert pictures == set(re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text))


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
            importlib.import_module(_COMMANDS[command[0]].module).add_arguments(parser)
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


def test_the_readmes_episode_runs(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    exec(compile(block.replace(", 100)", ", 4, progress=False)"), "README", "exec"), {})


def test_the_serving_pages_examples_run(root):
    pytest.importorskip("aiohttp")
    pytest.importorskip("openenv.core")
    text = (root / "docs" / "serving.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "serving", "exec"), namespace)
    assert all(episode.success for episode in namespace["episodes"])


@pytest.mark.parametrize(("number", "package"), [(0, "skyrl_gym"), (1, "verifiers"), (2, "numpy")])
def test_the_examples_of_other_trainers_run(root, number, package, monkeypatch, capsys):
    """Those of torch_loop and TRL are in their own tests."""
    pytest.importorskip(package)
    text = (root / "docs" / "other_trainers.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```", text.partition("## SkyRL-Gym")[2], flags=re.DOTALL | re.MULTILINE)[
        number
    ]
    importlib.import_module(f"agent_envs.adapters.{package}" if package == "verifiers" else package)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # verifiers sets handlers for every environment
    monkeypatch.setattr("atexit.register", lambda f, *_: f)
    try:
        exec(compile(block, f"other_trainers, block {number}", "exec"), {"__name__": "page"})
    finally:
        if package == "skyrl_gym":
            importlib.import_module("skyrl_gym").registry.pop("agentr1", None)
    said = capsys.readouterr().out.strip()
    assert {"skyrl_gym": "1.0 1.0", "verifiers": "['calculator']", "numpy": "1.0"}[package] in said


def test_the_wrappers_page_runs_and_names_every_wrapper(root):
    text = (root / "docs" / "wrappers.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(\w+)", text))
    assert {*WRAPPERS, *REFUSED} <= names
    order = text.index("## In this order")
    places = [text.index(f"`{name}", order) for name in ORDER]
    assert places == sorted(places)
    _run_sessions(text, "docs/wrappers.md")


def _run_sessions(text, page):
    shared = {}
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)):
        test = doctest.DocTestParser().get_doctest(block, shared, f"block {number}", page, 0)
        runner = doctest.DocTestRunner()
        runner.run(test, clear_globs=False)
        shared.update(test.globs)
        assert runner.failures == 0 and runner.tries > 0


def test_the_page_of_vectors_runs(root):
    _run_sessions((root / "docs" / "vectors.md").read_text(encoding="utf-8"), "docs/vectors.md")


def test_the_policies_page_runs_and_names_every_policy(root, tmp_path, monkeypatch, capsys):
    pytest.importorskip("openai")
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from agent_envs import policies
    from agent_envs.adapters.tiny.model import build_model, save_model
    from agent_envs.adapters.tiny.tokenizer import build_tokenizer

    text = (root / "docs" / "policies.md").read_text(encoding="utf-8")
    assert {f"`{name}`" for name in policies.__all__ if name.endswith("Policy") and name != "Policy"} <= set(
        re.findall(r"`\w+`", text)
    )
    monkeypatch.chdir(tmp_path)
    tokenizer = build_tokenizer(["user assistant system 0123456789"])
    save_model(build_model(tokenizer), tokenizer, tmp_path / "models" / "mine")
    namespace: dict[str, object] = {}
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)):
        exec(compile(block, f"policies, block {number}", "exec"), namespace)
    assert namespace["episode"].steps[-1].action == "#### 42"
    assert "ExpertPolicy 20" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", "docs/evaluation.md"])
def test_evaluations_print_what_the_pages_show(root, page, tmp_path, monkeypatch, capsys):
    from agent_envs.cli.main import main

    text = (root / page).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```console\n\$ agentr1 (eval .*)\n((?:.*\n)*?)^```", text, flags=re.MULTILINE)
    assert blocks
    for command, shown in blocks:
        assert main(shlex.split(command)) == 0
        said = capsys.readouterr().out
        untimed = [[line for line in some.splitlines() if not line.startswith("time ")] for some in (said, shown)]
        assert untimed[0] == untimed[1]
    if page != "README.md":
        for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
            exec(compile(block, page, "exec"), {})
