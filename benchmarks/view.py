"""The page of many episodes: seconds to write it, its size, and seconds until it can be used in a browser.

Episodes of five steps with 4 kB of words each. Observations are the environment's words, or whole prompts, which each
hold all before it (`ChatMessages`). Beside them: reading the same lines with `json` alone. In brackets: seconds of all
threads' processor time.

    python benchmarks/view.py [--episodes 10000] [--steps 5] [--chars 4000]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_envs.episodes.files import read_records
from agent_envs.episodes.html import write_view
from agent_envs.episodes.record import Episode, Step, StopReason, write_episodes

DIFFERENT = 200  # episodes that are made; the others are these again under other names
CALL = '<tool_call>{"name": "search", "arguments": {"query": "the capital"}}</tool_call>'
BROWSER_FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"


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


def _opened(page: Path, folder: Path) -> float:
    """Seconds from the page's start until its script has run; NaN without a browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return float("nan")
    command = [browser, *BROWSER_FLAGS.split(), f"--user-data-dir={folder}", "--dump-dom", f"file://{page}#1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        found = re.search(rb'data-ready="(\d+)"', process.stdout.read(1 << 14))
        process.stdout.read()
    return float("nan") if found is None else int(found[1]) / 1000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--chars", type=int, default=4000, help="of each observation")
    arguments = parser.parse_args()
    rng = random.Random(0)
    print(f"{'observations':<14}{'lines MB':>9}{'json s':>8}{'write s':>17}{'page MB':>9}{'open s':>8}")
    for name, whole in (("words", False), ("whole prompts", True)):
        some = [_episode(rng, arguments.steps, arguments.chars, whole=whole) for _ in range(DIFFERENT)]
        with tempfile.TemporaryDirectory() as folder:
            lines, page = Path(folder, "episodes.jsonl"), Path(folder, "page.html")
            every = (replace(some[i % DIFFERENT], episode_id=str(i)) for i in range(arguments.episodes))
            write_episodes(lines, every)
            started = time.perf_counter()
            with lines.open() as file:
                for line in file:
                    json.loads(line)
            parsed, used = time.perf_counter(), time.process_time()
            write_view(read_records([lines]), page)
            written, used = time.perf_counter(), time.process_time() - used
            sizes = [path.stat().st_size / 1e6 for path in (lines, page)]
            ready = _opened(page, Path(folder, "browser"))
        seconds = f"{parsed - started:>8.2f}{written - parsed:>10.2f} ({used:.2f})"
        print(f"{name:<14}{sizes[0]:>9.0f}{seconds}{sizes[1]:>9.0f}{ready:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
