"""What the pages show runs, and the generated page is the current one."""

from __future__ import annotations

import importlib.util
import re
import sys
import types

import pytest

from agent_envs.testing import check_text_env


def test_the_environments_page_is_current(root):
    spec = importlib.util.spec_from_file_location("generate_docs", root / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.PAGE.read_text(encoding="utf-8") == generate.page(), "run: python docs/generate.py"


def test_the_guide_to_writing_an_environment_runs(root, monkeypatch):
    text = (root / "docs" / "writing_an_environment.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    guide = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", guide)
    namespace = vars(guide)
    exec(compile(blocks[0], "guide, first block", "exec"), namespace)
    check_text_env("Mine/Guess-v0", vectors=False)
    exec(compile(blocks[2], "guide, third block", "exec"), namespace)
    env = namespace["DoubleEnv"](split="test")
    env.reset(options={"index": 5})
    assert env.step(env.format_call("double", {"number": 1005}))[0] == "2010"
    assert env.step("2010")[4]["success"]


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/training.md",
        "docs/environments.md",
        "docs/paper_search.md",
        "docs/serving.md",
        "docs/writing_an_environment.md",
    ],
)
def test_links_within_the_pages_lead_somewhere(root, page):
    path = root / page
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{page}: {target}"


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
