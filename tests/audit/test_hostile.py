"""Environments that hang, raise, end the process or print: the audit says so, and ends.

Behaviours pinned here:
1. What does not return is interrupted, and is a finding with the action; the audit ends with it.
2. Whatever an environment raises is a finding, SystemExit included; resets that fail are no traceback.
3. An environment that ends the process is one message with the task and the action, never status 0 or a certificate.
4. What an environment prints is not shown beside a certificate, and its texts cannot command a terminal.
5. What differs with the seed of hashes is found in processes of their own.
"""

import json
import os
import signal
import subprocess
import sys
import time

import gymnasium as gym
import pytest

from agent_envs.audit import audit

SPACE = gym.spaces.Text(100, min_length=0, charset=frozenset(map(chr, range(32, 127))))


class Quiet(gym.Env):
    """A plain environment over text: nothing is right."""

    observation_space = action_space = SPACE

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "Say a number.", {}

    def step(self, action):
        return "", 0.0, True, False, {}


def faulty(step=None, reset=None):
    return type("Faulty", (Quiet,), {k: v for k, v in (("step", step), ("reset", reset)) if v is not None})


def stall(self, action):
    try:
        while action == "7":
            time.sleep(0.01)
    except Exception:  # noqa: BLE001  an environment that catches what it can
        time.sleep(100)
    return "", 0.0, True, False, {}


def test_an_action_that_does_not_return_is_found():
    before = signal.getsignal(signal.SIGALRM)
    began = time.monotonic()
    found = audit(faulty(stall), tasks=2, step_timeout=0.3, processes=False)
    assert time.monotonic() - began < 20
    (finding,) = (finding for finding in found.findings if finding.kind == "crash")
    assert finding.played.actions == ["7"] and "0.3 seconds" in finding.why and "stopped" in found.checks
    assert found.attempts
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize("error", [SystemExit(0), ValueError("\x1b[2J")])
def test_whatever_is_raised_is_found(error):
    def step(self, action):
        if action == "0":
            raise error
        return "", 0.0, True, False, {}

    found = audit(faulty(step), tasks=2, processes=False)
    assert {finding.kind for finding in found.findings} == {"crash"} and "\x1b" not in found.table()


def test_a_reset_that_fails_is_found():
    def reset(self, *, seed=None, options=None):
        if seed == 1:
            raise KeyError("no such task")
        return Quiet.reset(self, seed=seed)

    found = audit(faulty(reset=reset), tasks=3, processes=False)
    assert {finding.kind for finding in found.findings} == {"crash"}


MODULE = """
import multiprocessing, os, sys, threading, time
import gymnasium as gym

class Env(gym.Env):
    observation_space = action_space = gym.spaces.Text(100, min_length=0, charset="".join(map(chr, range(32, 127))))

    def __init__(self, fault="", **kwargs):
        self.fault = fault
        if fault == "leave":
            sys.exit(3)
        if fault == "thread" and multiprocessing.parent_process():  # not in those with other seeds of hashes
            threading.Thread(target=time.sleep, args=(200,)).start()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "Say a number.", {}

    def step(self, action):
        print("\\x1b[2Jprinted")
        os.write(1, b"written")
        if self.fault == "exit" and action == "7":
            os._exit(0)
        return "", hash(action) % 1000 / 1e6 if self.fault == "reward" else 0.0, True, False, {}

gym.register("Hostile-v0", Env)
"""


@pytest.fixture
def module(tmp_path):
    (tmp_path / "hostile_envs.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def run(module, fault, *arguments):
    kwargs = json.dumps({"fault": fault})
    command = [sys.executable, "-m", "agent_envs", "audit", "--env", "hostile_envs:Hostile-v0", "--env-kwargs", kwargs]
    paths = os.pathsep.join([str(module), *filter(None, sys.path)])
    return subprocess.run(
        [*command, "--tasks", "2", *arguments], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process of its own")
@pytest.mark.parametrize(("fault", "when"), [("exit", "task 0, at the action '7'"), ("leave", "when it was made")])
def test_an_environment_that_ends_the_process_is_one_message(module, fault, when):
    ran = run(module, fault)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1) and when in ran.stderr


def test_what_an_environment_prints_or_leaves_running_is_not_shown(module):
    ran = run(module, "thread", "--json")  # in less time than the thread takes
    (finding,) = json.loads(ran.stdout)["findings"]
    assert finding["name"] == "nobody solves a task" and (ran.returncode, ran.stderr) == (3, "")


def test_what_depends_on_the_seed_of_hashes_is_found(module, monkeypatch):
    monkeypatch.syspath_prepend(str(module))
    found = audit("hostile_envs:Hostile-v0", env_kwargs={"fault": "reward"}, tasks=2)
    (finding,) = (finding for finding in found.findings if finding.name == "two seeds of hashes")
    assert finding.kind == "nondeterminism" and finding.played is not None and "order of sets" in finding.why
