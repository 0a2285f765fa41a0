"""The page of many episodes: seconds to write it, its size, and how soon a browser can use it.

Episodes of five steps with 4 kB of words each. Observations are the environment's words, or whole prompts, which each
hold all before it (`ChatMessages`). Beside them: reading the same lines with `json` alone. In brackets: seconds of all
threads' processor time. In the browser (Chromium and its driver): seconds until the page can be used, and of them from
a click to the episode, of a filter, of the grouping by task, and until a word that is in the last episode is found in
all texts.

    python benchmarks/view.py [--episodes 10000] [--steps 5] [--chars 4000]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_envs.episodes.record import Episode, Step, StopReason, write_episodes
from agent_envs.viewer.write import numbered_records, write_view

DIFFERENT = 200  # episodes that are made; the others are these again under other names
CALL = '<tool_call>{"name": "search", "arguments": {"query": "the capital"}}</tool_call>'


def _words(rng: random.Random, chars: int) -> str:
    return " ".join(f"w{rng.randrange(5000)}" for _ in range(chars // 5))[:chars]


def _episode(rng: random.Random, steps: int, chars: int, *, whole: bool) -> Episode:
    shown: list[Any] = [{"role": "system", "content": "Answer."}, {"role": "user", "content": _words(rng, chars)}]
    taken = []
    for number in range(1, steps + 1):
        action = f"<think>{_words(rng, 200)}</think>{CALL}"
        info = {"success": True, "score": 1.0, "reward_components": {"task": 1.0}}
        seen = list(shown) if whole else shown[-1]["content"]
        taken.append(Step(seen, action, 0.0, terminated=number == steps, truncated=False, info=info))
        shown += [{"role": "assistant", "content": action}, {"role": "tool", "content": _words(rng, chars)}]
    return Episode(
        env_id="AgentR1/HotpotQA-v0", episode_id="", group_id="g", seed=0, index=0, instructions="Answer.", tools=(),
        reset_info={"task_id": "train/0"}, steps=tuple(taken), stop_reason=StopReason.TERMINATED,
        final_observation=shown if whole else shown[-1]["content"],
    )  # fmt: skip


def _in_browser(page: Path, folder: Path, word: str) -> list[float]:
    """Seconds until the page is ready, and of an episode, a filter, a grouping and a search; none without a browser."""
    spec = importlib.util.spec_from_file_location("browser", Path(__file__).parents[1] / "tests" / "browser.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.browsers() is None:
        return []
    with module.Browser(folder) as browser:
        browser.open(page)
        seconds = [int(browser.run("return document.body.dataset.ready")) / 1000]
        timed = "const began = performance.now(); {}; return (performance.now() - began) / 1000"
        middle = timed.format("await choose(Math.floor(all.length / 2))")
        seconds.append(browser.run(f"return (async () => {{ {middle} }})()"))
        seconds.append(browser.run(timed.format("$('solved').value = '0'; filter()")))
        seconds.append(browser.run(timed.format("$('solved').value = ''; setMode('group')")))
        browser.run(f"setMode('group'); $('contents').checked = true; $('search').value = '{word}'; searched()")
        began = time.perf_counter()
        browser.wait(lambda: browser.text("#progress") == "1 found", 600)
        return [*seconds, time.perf_counter() - began]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--chars", type=int, default=4000, help="of each observation")
    arguments = parser.parse_args()
    rng = random.Random(0)
    heads = ("open s", "episode", "filter", "group", "search")
    print(f"{'observations':<14}{'lines MB':>9}{'json s':>8}{'write s':>17}{'page MB':>9}", *heads, sep="  ")
    for name, whole in (("words", False), ("whole prompts", True)):
        some = [_episode(rng, arguments.steps, arguments.chars, whole=whole) for _ in range(DIFFERENT)]
        with tempfile.TemporaryDirectory() as folder:
            lines, page = Path(folder, "episodes.jsonl"), Path(folder, "page.html")
            every = (
                replace(
                    some[i % DIFFERENT], episode_id=str(i), error="unheard-of" if i == arguments.episodes - 1 else None
                )
                for i in range(arguments.episodes)
            )
            write_episodes(lines, every)
            started = time.perf_counter()
            with lines.open() as file:
                for line in file:
                    json.loads(line)
            parsed, used = time.perf_counter(), time.process_time()
            write_view(numbered_records([lines]), page)
            written, used = time.perf_counter(), time.process_time() - used
            sizes = [path.stat().st_size / 1e6 for path in (lines, page)]
            figures = _in_browser(page, Path(folder), "unheard-of")
        seconds = f"{parsed - started:>8.2f}{written - parsed:>10.2f} ({used:.2f})"
        shown = "".join(f"  {value:>6.3f}" for value in figures)
        print(f"{name:<14}{sizes[0]:>9.0f}{seconds}{sizes[1]:>9.1f}{shown}", flush=True)


if __name__ == "__main__":
    main()
