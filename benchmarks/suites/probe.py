"""One figure of one suite, measured inside that suite's own environment: standard library and the suite, nothing else.

    .../bin/python benchmarks/suites/probe.py PEER CELL [--seconds N]    # prints one JSON object

PEER is a module of `peers/`, which opens the suite's tasks in the way its documentation describes. compare.py runs
this. Times are processor time of this process (children included), where no wall-clock time is named.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

FOLDER = Path(__file__).resolve().parent
CALLS = 9  # of the calculator in an episode, and then the answer
QUESTION, EXPRESSION, RESULT, ANSWER = "What is 12 times 7?", "12*7", "84", "The answer is 84."
SECONDS = 6.0  # that a hanging tool sleeps
LIMIT = 1.0  # of a tool, where the suite can set one
PROGRAM_LIMIT = 2.0  # of a program
PROMPT_TOKENS, RESPONSE_TOKENS, RESULT_TOKENS = 200, 40, 60  # of an episode whose tokens are counted

TEXTS = {
    "nothing": "",
    "blanks": " \n\t\r ",
    "control characters": "\x00\x01\x1b[2J\x07\x7f",
    "lone surrogates": "a \ud800 b \udfff",
    "every plane": "".join(chr(plane * 65536 + 0x41) for plane in range(17)),
    "a million characters": "a" * 1_000_000,
    "a million digits": "\\boxed{" + "9" * 1_000_000 + "}",
    "digits that are no ASCII": "\\boxed{٣} [٣] #### ٣ ²",
    "opened and never closed": "<tool_call><answer><think>\\boxed{[{(",
    "deep brackets": "[" * 100_000,
    "places for values": "{0} {x.__class__} %s %(x)s ${x}",
    "a cut-off escape": '\\boxed{\\u12} "\\',
}
"""Actions that must end in an observation: what a model under training, or an attacker, writes sooner or later."""


refusal: type[Exception] = ValueError
"""What the calculator raises for what it cannot read; a suite that has a class for that names it ``REFUSAL``."""


class MissingError(Exception):
    """This suite has no such thing; the text says why."""


class Played(Protocol):
    """A task or a tool loop of a suite, behind two functions."""

    def reset(self, seed: int) -> str: ...

    def step(self, action: Any) -> tuple[str, float, bool]: ...


class OfGymnasium:
    """Has these two functions over a `gymnasium.Env`."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, seed: int) -> str:
        return self.env.reset(seed=seed)[0]

    def step(self, action: str) -> tuple[str, float, bool]:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return observation, float(reward), terminated or truncated


def calculator(expression: str) -> str:
    """Calculate a product or a sum of two whole numbers.

    Args:
        expression: For example 12*7.
    """
    match = re.fullmatch(r"(\d{1,9})([*+])(\d{1,9})", expression)
    if match is None:
        raise refusal(f"expected a product or a sum of two whole numbers, got {expression[:50]!r}")
    left, right = int(match[1]), int(match[3])
    return str(left * right if match[2] == "*" else left + right)


def broken(expression: str) -> str:
    """Fail by a mistake of the tool's author.

    Args:
        expression: Ignored.
    """
    return {}[expression]


def hang(expression: str) -> str:
    """Wait for some seconds.

    Args:
        expression: Ignored.
    """
    time.sleep(SECONDS)
    return expression


def load(name: str) -> ModuleType:
    """Import a peer from its file, under a name that hides no package."""
    spec = importlib.util.spec_from_file_location(f"peer_{name}", FOLDER / "peers" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def of(peer: ModuleType, name: str) -> Any:
    """Return a function of a peer; where it has none, its ``WHY`` says the reason."""
    if name not in vars(peer):
        raise MissingError(peer.WHY[name])
    return vars(peer)[name]


def processor_time() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def episode(task: Played, actions: Iterable[Any], seed: int) -> Iterator[tuple[str, float, bool]]:
    yield task.reset(seed), 0.0, False
    for action in actions:
        outcome = task.step(action)
        yield outcome
        if outcome[2]:
            return


def import_seconds(peer: ModuleType, seconds: float) -> dict[str, Any]:
    def run(code: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\nimport os; t = os.times(); print(f'\\n{{t.user + t.system}}')"],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        return float(done.stdout.split()[-1])

    code = of(peer, "IMPORT")
    run(code)  # writes bytecode
    own, bare = [run(code) for _ in range(5)], [run("pass") for _ in range(5)]
    return {"seconds": statistics.median(own) - statistics.median(bare), "of": code}


def reset(peer: ModuleType, seconds: float) -> dict[str, Any]:
    task: Played = of(peer, "task")()
    for seed in range(20):
        task.reset(seed)
    costs, seed, deadline = [], 20, time.monotonic() + seconds
    while time.monotonic() < deadline or len(costs) < 3:
        begin, first = time.process_time(), seed
        while seed - first < 10_000 and time.process_time() - begin < seconds / 20:
            task.reset(seed)
            seed += 1
        costs.append((time.process_time() - begin) / (seed - first))
    return {"microseconds": 1e6 * statistics.median(costs), "resets": seed, "of": peer.TASK}


def step(peer: ModuleType, seconds: float) -> dict[str, Any]:
    task: Played = of(peer, "task")()
    costs: list[float] = []
    deadline, seed = time.monotonic() + seconds, 0
    while time.monotonic() < deadline or len(costs) < 30:
        task.reset(seed)
        seed += 1
        for number in range(20):
            action = peer.action(number)
            begin = time.process_time()
            done = task.step(action)[2]
            costs.append(time.process_time() - begin)
            if done:
                break
    return {"microseconds": 1e6 * statistics.median(costs), "steps": len(costs), "of": peer.TASK}


def loop(peer: ModuleType, seconds: float) -> dict[str, Any]:
    task: Played = of(peer, "loop")({"calculator": calculator}, None)
    call = peer.call("calculator", {"expression": EXPRESSION})
    actions = [call] * CALLS + [peer.answer(ANSWER)]
    played = list(episode(task, actions, 0))
    if len(played) != CALLS + 2 or any(RESULT not in text for text, _, _ in played[1:-1]) or played[-1][1] != 1.0:
        raise RuntimeError(f"the loop did not calculate, or its answer earned nothing: {str(played)[:500]}")
    speeds, deadline, seed = [], time.monotonic() + seconds, 1
    while time.monotonic() < deadline or len(speeds) < 3:
        begin, first = time.process_time(), seed
        while seed - first < 1000 and time.process_time() - begin < seconds / 20:
            for _ in episode(task, actions, seed):
                pass
            seed += 1
        speeds.append((seed - first) * CALLS / (time.process_time() - begin))
    return {"calls_per_second": statistics.median(speeds), "calls": seed * CALLS}


def memory(peer: ModuleType, seconds: float) -> dict[str, Any]:
    count, make = 50, of(peer, "task")
    make().reset(0)
    tracemalloc.start()
    tasks = [make() for _ in range(count)]
    for seed, task in enumerate(tasks):
        task.reset(seed)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"kilobytes": used / count / 1e3, "environments": count, "of": peer.TASK}


def soak(peer: ModuleType, seconds: float, wanted: int = 100_000) -> dict[str, Any]:
    task: Played = of(peer, "task")()

    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for seed in range(500):
        task.reset(seed)
    before, done, deadline = resident(), 0, time.monotonic() + 10 * seconds
    while done < wanted and time.monotonic() < deadline:
        task.reset(500 + done)
        done += 1
    return {"megabytes": (resident() - before) / 1e6, "resets": done, "of": peer.TASK}


def transcript(peer: ModuleType, seconds: float) -> dict[str, Any]:
    """20 seeds, played with the same actions."""
    task: Played = of(peer, "task")()
    played = [repr(list(episode(task, map(peer.action, range(10)), seed))) for seed in range(20)]
    digest = hashlib.sha256("\n".join(played).encode("utf-8", "backslashreplace")).hexdigest()
    return {"digest": digest, "different": len(set(played))}


def determinism(peer: ModuleType, seconds: float) -> dict[str, Any]:
    of(peer, "task")
    found = []
    for seed in ("1", "2"):
        command = [sys.executable, __file__, peer.__name__.removeprefix("peer_"), "transcript"]
        done = subprocess.run(
            command, capture_output=True, check=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    same = found[0]["digest"] == found[1]["digest"]
    return {"same": same, "seeds": 20, "different": found[0]["different"], "of": peer.TASK}


def check_env(peer: ModuleType, seconds: float) -> dict[str, Any]:
    make = of(peer, "gymnasium_env")

    import warnings

    from gymnasium.utils.env_checker import check_env as check

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(make().unwrapped)
    return {"warnings": len(caught), "texts": [str(one.message)[:200] for one in caught[:3]]}


def tool_limit(peer: ModuleType, seconds: float) -> dict[str, Any]:
    if "tool_limit" in peer.WHY:
        raise MissingError(peer.WHY["tool_limit"])
    task: Played = of(peer, "loop")({"hang": hang}, LIMIT)
    task.reset(0)
    begin = time.monotonic()
    text = task.step(peer.call("hang", {"expression": EXPRESSION}))[0]
    return {"seconds": time.monotonic() - begin, "limit": LIMIT, "slept": SECONDS, "observation": text[:200]}


def program_limit(peer: ModuleType, seconds: float) -> dict[str, Any]:
    run: Callable[[str, float], str] = of(peer, "program")
    hello = run("print(6 * 7)", 10.0)
    if "42" not in hello:
        raise RuntimeError(f"a program that prints 42 gave {hello[:300]!r}")
    begin = time.monotonic()
    text = run("while True: pass", PROGRAM_LIMIT)
    return {"seconds": time.monotonic() - begin, "limit": PROGRAM_LIMIT, "observation": text[:200]}


def survived(task: Played, actions: dict[str, Any]) -> dict[str, Any]:
    faults = {}
    for seed, (name, action) in enumerate(actions.items()):
        task.reset(seed)
        begin = time.monotonic()
        try:
            text, reward, _ = task.step(action)
            if not isinstance(text, str) or reward >= 1.0:
                faults[name] = f"observation {text!r:.80}, reward {reward}"
            elif time.monotonic() - begin > 5:
                faults[name] = f"{time.monotonic() - begin:.1f} s"
        except Exception as e:  # noqa: BLE001  whatever a suite lets through is the finding
            faults[name] = f"{type(e).__name__}: {str(e)[:150]}".encode("ascii", "backslashreplace").decode()
    return {"survived": len(actions) - len(faults), "of": len(actions), "faults": faults}


def hostile_texts(peer: ModuleType, seconds: float) -> dict[str, Any]:
    if "hostile_texts" in peer.WHY:
        raise MissingError(peer.WHY["hostile_texts"])
    return {**survived(of(peer, "task")(), TEXTS), "task": peer.TASK}


def hostile_calls(peer: ModuleType, seconds: float) -> dict[str, Any]:
    if "hostile_calls" in peer.WHY:
        raise MissingError(peer.WHY["hostile_calls"])
    task: Played = of(peer, "loop")({"calculator": calculator, "broken": broken}, None)
    call = peer.call
    return survived(task, {
        "what the tool refuses": call("calculator", {"expression": "12/0"}),
        "a tool with a mistake in it": call("broken", {"expression": EXPRESSION}),
        "an unknown tool": call("no_such_tool", {"expression": EXPRESSION}),
        "a method for a tool": call("__init__", {}),
        "no argument": call("calculator", {}),
        "a surplus argument": call("calculator", {"expression": EXPRESSION, "self": 1}),
        "an argument of another type": call("calculator", {"expression": {"a": [1]}}),
        "a number for text": call("calculator", {"expression": 12}),
        "a megabyte": call("calculator", {"expression": "1" * 1_000_000}),
        "lone surrogates": call("calculator", {"expression": "\ud800"}),
        "no JSON": peer.call("calculator", '{"expression": "12*7'),
        "a list for arguments": peer.call("calculator", "[1, 2]"),
        "deep brackets": peer.call("calculator", "[" * 100_000),
    })  # fmt: skip


def expert(peer: ModuleType, seconds: float) -> dict[str, Any]:
    passed, played, how = of(peer, "expert")()
    return {"share": passed / played, "passed": passed, "played": played, "of": how}


def tokens(peer: ModuleType, seconds: float) -> dict[str, Any]:
    processed, how = of(peer, "processed"), peer.LAYOUT
    return {
        **{f"steps_{steps}": processed(steps) / (unique := unique_tokens(steps)) for steps in (5, 20)},
        "unique_20": unique,
        "of": how,
    }


def unique_tokens(steps: int) -> int:
    """Tokens of an episode whose prompts grow: what a trainer cannot do without."""
    return PROMPT_TOKENS + steps * RESPONSE_TOKENS + (steps - 1) * RESULT_TOKENS


def row_per_step(steps: int) -> int:
    """Tokens that a trainer processes which makes a row of every step, with that step's whole prompt."""
    turn = RESPONSE_TOKENS + RESULT_TOKENS
    return sum(PROMPT_TOKENS + done * turn + RESPONSE_TOKENS for done in range(steps))


CELLS: dict[str, Callable[[ModuleType, float], dict[str, Any]]] = {
    "import": import_seconds,
    "reset": reset,
    "step": step,
    "loop": loop,
    "memory": memory,
    "soak": soak,
    "determinism": determinism,
    "check_env": check_env,
    "tool_limit": tool_limit,
    "program_limit": program_limit,
    "hostile_texts": hostile_texts,
    "hostile_calls": hostile_calls,
    "expert": expert,
    "tokens": tokens,
}


def main() -> None:
    global refusal
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer")
    parser.add_argument("cell", choices=[*CELLS, "transcript"])
    parser.add_argument("--seconds", type=float, default=6.0, help="of a timed cell; a soak may take ten times as long")
    arguments = parser.parse_args()
    sys.modules["probe"] = sys.modules["__main__"]  # which the peers import
    with contextlib.redirect_stdout(sys.stderr):  # some suites print
        try:
            peer = load(arguments.peer)
            refusal = vars(peer).get("REFUSAL", refusal)
            result = {**CELLS, "transcript": transcript}[arguments.cell](peer, arguments.seconds)
        except MissingError as e:
            result = {"missing": str(e)}
    print(json.dumps(result), flush=True)
    os._exit(0)  # some suites leave threads and servers behind, and hanging tools go on


if __name__ == "__main__":
    main()
