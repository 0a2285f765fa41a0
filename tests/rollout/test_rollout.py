"""Rollouts. What these tests pin:

1. an episode is recorded step by step, and no later step changes an earlier record;
2. every way to end has its stop reason, and the last step of an episode is always terminated or truncated;
3. an exception anywhere is an episode with the traceback, and no other episode notices;
4. a hung environment, actor or constructor holds up nobody, not even the interpreter's exit;
5. results come in input order and depend on seeds and options alone, not on the concurrency;
6. all of it works inside a running event loop.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import gymnasium as gym
import pytest

from agent_envs import Problem
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.errors import BackendError, ConfigError, ContextLengthExceeded, EmptyGeneration
from agent_envs.policies import Response, ScriptedPolicy
from agent_envs.rollout.episode_run import EpisodeTask
from agent_envs.rollout.evaluate import evaluate
from agent_envs.rollout.many import run_episodes
from agent_envs.rollout.one import arun_episode, play_tasks, run_episode
from agent_envs.tasks import ListedTasks
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.threads import background_loop
from tests.helpers import own_package, until


class GuessEnv(TextEnv):
    """A hundred numbers to guess. Actions: a number (the answer ends the task), "sleep:S", "crash", "exit"."""

    instructions = "Guess the number."
    made: list[GuessEnv] = []

    def __init__(self, fail_after: int | None = None, slow_reset: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if fail_after is not None and len(GuessEnv.made) >= fail_after:
            raise RuntimeError("no more environments")
        self.slow_reset = slow_reset
        self.closed = False
        self.log: list[str] = []
        GuessEnv.made.append(self)

    def close(self) -> None:
        self.closed = True

    def open_tasks(self) -> ListedTasks[Problem]:
        return ListedTasks(
            [Problem(f"guess/{i}", f"Guess guess/{i}", str(i)) for i in range(100)], "generated", "train"
        )

    def begin(self, task: Problem) -> tuple[str, Any]:
        time.sleep(self.slow_reset)
        self.log = []
        return task.question, None

    def act(self, action: str) -> Outcome:
        self.log.append(action)
        if action.startswith("sleep:"):
            time.sleep(float(action.removeprefix("sleep:")))
        if action == "crash":
            raise ZeroDivisionError("the env crashed")
        if action == "exit":
            raise SystemExit(3)
        won = action == self.task.answer
        return Outcome("right" if won else "wrong", float(won), won, success=won, extra={"log": self.log})


gym.register("Test/Guess-v0", GuessEnv, max_episode_steps=5)


@pytest.fixture(autouse=True)
def _no_envs_made():
    GuessEnv.made.clear()


def make() -> gym.Env[str, str]:
    return gym.make("Test/Guess-v0")


def play(policy: Any, n: int, **more: Any) -> list[Episode]:
    return run_episodes("Test/Guess-v0", policy, n, progress=False, **more)


class Guesser:
    """Guesses wrong once, then right: plain or async, with a delay."""

    def __init__(self, delay: float = 0.0, use_async: bool = False) -> None:
        self.delay = delay
        self.use_async = use_async
        self.cancelled = threading.Event()
        self.active = self.most_active = 0
        self.lock = threading.Lock()

    def start(self, env: gym.Env[str, str]) -> _GuessActor:
        return _GuessActor(self, env)


class _GuessActor:
    def __init__(self, policy: Guesser, env: gym.Env[str, str]) -> None:
        self.policy = policy
        self.env = env
        self.step = 0

    def act(self, observation: str, info: dict[str, Any]) -> Any:
        self.step += 1
        action = str(info["index"]) if self.step == 2 else "no"
        if self.policy.use_async:
            return self._later(action)
        time.sleep(self.policy.delay)
        return action

    async def _later(self, action: str) -> str:
        with self.policy.lock:
            self.policy.active += 1
            self.policy.most_active = max(self.policy.active, self.policy.most_active)
        try:
            await asyncio.sleep(self.policy.delay)
        except asyncio.CancelledError:
            self.policy.cancelled.set()
            raise
        finally:
            with self.policy.lock:
                self.policy.active -= 1
        return action


def plain(episode: Episode) -> dict[str, Any]:
    """What must be the same in a repetition."""
    return {key: value for key, value in episode.to_dict().items() if key != "episode_id"}


# -- one episode ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_async", [False, True])
def test_an_episode_is_recorded(use_async):
    episode = run_episode(make(), Guesser(use_async=use_async), seed=3, options={"index": 7})
    assert (episode.env_id, episode.group_id) == ("Test/Guess-v0", "guess/7")
    assert (episode.seed, episode.index) == (3, 7)
    assert (episode.instructions, episode.tools) == ("Guess the number.", ())
    assert episode.stop_reason is StopReason.TERMINATED and episode.error is None
    assert [step.observation for step in episode.steps] == ["Guess guess/7", "wrong"]
    assert [step.action for step in episode.steps] == ["no", "7"]
    assert [(step.reward, step.terminated, step.truncated) for step in episode.steps] == [
        (0.0, False, False),
        (1.0, True, False),
    ]
    assert episode.final_observation == "right" and episode.success and episode.reward == 1.0
    assert Episode.from_dict(episode.to_dict()) == episode
    assert len(episode.episode_id) == 32


def test_later_steps_do_not_change_earlier_records():
    episode = run_episode(make(), ScriptedPolicy(["a", "b", "c", "4"]), options={"index": 4})
    logs = [step.info["log"] for step in episode.steps]
    assert logs == [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "4"]]


def test_the_step_limit_truncates_unless_its_last_step_is_the_right_answer():
    for last, reason in (("x", StopReason.TRUNCATED), ("9", StopReason.TERMINATED)):
        episode = run_episode(make(), ScriptedPolicy([*"xxxx", last]), options={"index": 9})
        assert episode.stop_reason is reason
        cut = reason is StopReason.TRUNCATED
        assert [(s.terminated, s.truncated) for s in episode.steps] == [(False, False)] * 4 + [(not cut, cut)]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ContextLengthExceeded("too long"), StopReason.CONTEXT_LENGTH),
        (EmptyGeneration("nothing"), StopReason.EMPTY_GENERATION),
        ("", StopReason.EMPTY_GENERATION),
        (Response("", response_ids=()), StopReason.EMPTY_GENERATION),
        (Response("text", response_ids=()), StopReason.EMPTY_GENERATION),
        (42, StopReason.ERROR),  # not an action
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_what_a_policy_can_end_an_episode_with(end, reason, before):
    answers = iter(["x"] * before + [end])

    def act(observation: str, info: dict[str, Any]) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    episode = run_episode(make(), ScriptedPolicy(act), seed=0)
    assert episode.stop_reason is reason
    assert [step.truncated for step in episode.steps] == ([False, True] if before else [])
    assert episode.error


def test_an_exception_is_an_episode_with_its_traceback():
    env = make()
    episode = run_episode(env, ScriptedPolicy(["x", "crash"]), seed=0)
    assert episode.stop_reason is StopReason.ERROR
    assert episode.error is not None
    assert "ZeroDivisionError: the env crashed" in episode.error and "in act" in episode.error
    assert len(episode.steps) == 1 and episode.steps[0].truncated
    again = run_episode(env, ScriptedPolicy(["5"]), options={"index": 5})
    assert again.success and not GuessEnv.made[0].closed  # the caller's env stays open


def test_a_bad_index_is_an_episode_without_steps():
    episode = run_episode(make(), ScriptedPolicy([]), options={"index": 100})
    assert episode.stop_reason is StopReason.ERROR and episode.steps == () and episode.index == 100
    assert episode.error is not None and "0 to 99" in episode.error


def test_keyboard_interrupt_passes():
    def act(observation: str, info: dict[str, Any]) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_episode(make(), ScriptedPolicy(act))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_an_error_where_episodes_are_taken_ends_the_others(error):
    def take(number: int, episode: Episode, seconds: float) -> None:
        raise error

    def act(observation: str, info: dict[str, Any]) -> str:
        if info["index"] != 1:
            ended.wait()
        return str(info["index"])

    ended, policy = threading.Event(), ScriptedPolicy(act)
    with pytest.raises(error):
        play_tasks(make, [EpisodeTask(policy, options={"index": i}) for i in range(3)], take, concurrency=3)
    ended.set()


def test_everything_works_inside_a_running_loop():
    async def main() -> None:
        policy = Guesser(use_async=True)
        assert run_episode(make(), policy, options={"index": 1}).success
        assert all(e.success for e in play(policy, 3))
        assert (await arun_episode(make(), policy, options={"index": 1})).success

    asyncio.run(main())


def test_waiting_for_the_loop_that_waits_is_an_error_and_no_hang():
    async def main() -> Episode:
        return run_episode(make(), Guesser(use_async=True))

    episode = asyncio.run_coroutine_threadsafe(main(), background_loop()).result(timeout=10)
    assert episode.error is not None and "await arun_episode() here" in episode.error


# -- time-outs -----------------------------------------------------------------------------------------------


def test_an_async_act_runs_on_the_callers_loop_and_names_given_are_kept():
    loops = []

    class Policy:
        def start(self, env: Any) -> Policy:
            return self

        async def act(self, observation: str, info: dict[str, Any]) -> str:
            loops.append(asyncio.get_running_loop())
            return str(info["index"])

    async def main() -> None:
        episode = await arun_episode(make(), Policy(), seed=0, episode_id="e", group_id="g")
        assert loops == [asyncio.get_running_loop()] and (episode.episode_id, episode.group_id) == ("e", "g")

    asyncio.run(main())


def test_a_step_that_takes_too_long_ends_the_episode():
    env = make()
    start = time.monotonic()
    policy = ScriptedPolicy(["x", "sleep:1.5", "x"])
    episode = asyncio.run(arun_episode(env, policy, options={"index": 2}, step_timeout=0.2))
    assert time.monotonic() - start < 1.2
    assert episode.stop_reason is StopReason.STEP_TIMEOUT
    assert [step.action for step in episode.steps] == ["x"] and episode.steps[0].truncated
    assert episode.error is not None and "time.sleep(float(" in episode.error  # where it hangs
    guess = GuessEnv.made[0]
    assert not guess.closed
    assert until(lambda: guess.closed)  # the thread that was left behind cleans up
    assert guess.log == ["x", "sleep:1.5"]  # and plays no further
    assert len(episode.steps) == 1


def test_steps_that_are_each_in_time_add_up_to_an_episode_timeout():
    policy = ScriptedPolicy(["sleep:0.1"] * 5)
    episode = asyncio.run(arun_episode(make(), policy, seed=0, step_timeout=5.0, episode_timeout=0.35))
    assert episode.stop_reason is StopReason.EPISODE_TIMEOUT
    assert len(episode.steps) <= 3


@pytest.mark.parametrize("untimed", [True, False])
def test_time_limits_leave_out_an_action_that_waits_for_something_else(untimed):
    class Waiting:
        """Waits longer than a step may take before every action, then once lets the environment hang."""

        def __init__(self) -> None:
            self.untimed = untimed

        async def act(self, observation, info):
            await asyncio.sleep(0.3)
            return "1"

    class Policy:
        def start(self, env):
            return Waiting()

    limits = {"step_timeout": 0.2, "episode_timeout": 0.4}
    episode = asyncio.run(arun_episode(make(), Policy(), seed=0, **limits))
    assert episode.stop_reason.broken is not untimed
    assert len(episode.steps) > 1 if untimed else not episode.steps


def test_a_reset_that_hangs_is_a_step_timeout():
    env = gym.make("Test/Guess-v0", slow_reset=0.5)
    episode = asyncio.run(arun_episode(env, ScriptedPolicy([]), step_timeout=0.1))
    assert episode.stop_reason is StopReason.STEP_TIMEOUT and episode.steps == ()


def test_a_hung_async_act_is_cancelled():
    policy = Guesser(delay=60.0, use_async=True)
    episodes = play(policy, 2, step_timeout=0.2)
    assert [e.stop_reason for e in episodes] == [StopReason.STEP_TIMEOUT] * 2
    assert policy.cancelled.wait(5.0)
    assert until(lambda: policy.active == 0)
    assert until(lambda: all(env.closed for env in GuessEnv.made))


def test_cancelling_an_episode_cancels_its_act_and_closes_its_env():
    policy = Guesser(delay=60.0, use_async=True)

    async def main() -> None:
        task = asyncio.create_task(arun_episode(make(), policy, seed=0))
        while not policy.active:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert policy.cancelled.is_set()
    assert until(lambda: GuessEnv.made[0].closed)


def test_a_system_exit_in_an_env_is_an_error_and_no_hang():
    episodes = play(ScriptedPolicy(["exit"]), 1, on_error="record")
    assert episodes[0].stop_reason is StopReason.ERROR
    assert episodes[0].error is not None and "SystemExit: 3" in episodes[0].error


def test_what_is_no_policy_is_refused():
    env = gym.make("Test/Guess-v0")
    for wrong, why in (
        ("expert", "from an observation to an action, got 'expert'"),
        (None, "got None"),
        (ScriptedPolicy, "got the class ScriptedPolicy; write ScriptedPolicy()"),
    ):
        for play in (
            lambda: run_episodes("Test/Guess-v0", wrong, 3),  # noqa: B023
            lambda: run_episode(env, wrong),  # noqa: B023
            lambda: asyncio.run(arun_episode(env, wrong)),  # noqa: B023
        ):
            with pytest.raises(ConfigError, match=re.escape(why)):
                play()


@pytest.mark.parametrize("use_async", [False, True])
def test_a_function_is_a_policy(use_async):
    def double(observation: str) -> str:
        return "8" if observation else "1"

    async def double_soon(observation: str) -> str:
        return double(observation)

    function = double_soon if use_async else double
    one = run_episode(gym.make("Test/Guess-v0"), function, seed=0)
    (many,) = play(function, 1)
    (scored,) = evaluate("Test/Guess-v0", function, 1).episodes
    scripted = ScriptedPolicy(lambda observation, info: double(observation))
    expected = run_episode(gym.make("Test/Guess-v0"), scripted, seed=0)
    for episode in (one, many, scored):
        assert [step.action for step in episode.steps] == [step.action for step in expected.steps]
        assert episode.stop_reason is not StopReason.ERROR


def test_a_group_plays_each_task_side_by_side():
    episodes = run_episodes("AgentR1/GSM8K-v0", lambda observation: "#### 1", 3, group=4, progress=False)
    alone = run_episodes("AgentR1/GSM8K-v0", lambda observation: "#### 1", 3, progress=False)
    assert [(e.seed, e.group_id, e.index) for e in episodes] == [
        (e.seed, e.group_id, e.index) for e in alone for _ in range(4)
    ]
    assert len({e.episode_id for e in episodes}) == 12 and len({e.group_id for e in episodes}) == 3


def test_errors_are_raised_or_recorded_and_counted(caplog, capsys):
    bad = {0}

    def act(observation: str, info: dict[str, Any]) -> str:
        if info["index"] in bad:
            raise RuntimeError("no engine")
        return "0"

    def play(**more: Any) -> list[Episode]:
        indices = [{"index": i % 5} for i in range(20)]
        return run_episodes("Test/Guess-v0", ScriptedPolicy(act), 20, options=indices, concurrency=1, **more)

    episodes = play()  # some of them worked
    assert [episode.stop_reason is StopReason.ERROR for episode in episodes] == [i % 5 == 0 for i in range(20)]
    assert "4 of 20 episodes ended with an error, the last with: RuntimeError: no engine" in caplog.text
    assert re.search(r"20/20 .*errors=4", capsys.readouterr().err)
    with pytest.raises(BackendError, match="(?s)an episode ended with an error.*Traceback.*RuntimeError: no engine"):
        play(on_error="raise")
    bad.update(range(5))
    with pytest.raises(BackendError, match="(?s)the first 8 episodes all ended with an error; on_error='record' keeps"):
        play()
    with pytest.raises(BackendError, match="the first 8 episodes all ended"):
        play(progress=False)
    assert {episode.stop_reason for episode in play(on_error="record", progress=False)} == {StopReason.ERROR}
    with pytest.raises(ConfigError, match="on_error must be one of 'raise', 'record', None, got 'ignore'"):
        play(on_error="ignore")


_HANGS = """
import threading, time
from agent_envs.rollout.many import run_episodes
from agent_envs.policies import ScriptedPolicy
from agent_envs.text_env import Outcome, TextEnv

class Tasks(list):
    name = split = "generated"
class Task:
    task_id = "t"
class HangEnv(TextEnv):
    def open_tasks(self):
        return Tasks([Task()] * 20)
    def begin(self, task):
        return "go", None
    def act(self, action):
        if self._index == 3:
            threading.Event().wait()
        return Outcome("done", 1.0, True, success=True)

options = [{"index": i} for i in range(20)]
start = time.monotonic()
episodes = run_episodes(HangEnv, ScriptedPolicy(["x"]), 20, options=options, concurrency=2,
                        step_timeout=0.5, progress=False)
print(sum(e.success for e in episodes), episodes[3].stop_reason.value, time.monotonic() - start < 10)
"""


def test_a_hung_step_holds_up_nobody_not_even_the_exit():
    command = [sys.executable, "-c", _HANGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=own_package(), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "19 step_timeout True\n", "")


_WAITS = """
import asyncio
from agent_envs import run_episodes

async def act(observation):
    print("acting", flush=True)
    await asyncio.sleep(60)

run_episodes("AgentR1/GSM8K-v0", act, 1, progress=False)
"""


def test_an_interrupt_ends_a_rollout_that_hangs():
    with subprocess.Popen(
        [sys.executable, "-c", _WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own_package(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job's shell has it ignored
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "acting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert errors.rstrip().endswith("KeyboardInterrupt") and "never" not in errors
    assert process.returncode == -signal.SIGINT


# -- many episodes -------------------------------------------------------------------------------------------


def test_results_are_in_input_order_and_do_not_depend_on_concurrency():
    runs = [play(Guesser(), 30, concurrency=concurrency) for concurrency in (1, 4, 30)]
    assert [e.seed for e in runs[0]] == list(range(30))
    assert len({e.index for e in runs[0]}) > 10
    for other in runs[1:]:
        assert [plain(e) for e in other] == [plain(e) for e in runs[0]]
    assert len({e.episode_id for run in runs for e in run}) == 90


def test_seeds_and_options_per_episode():
    options = [{"index": i} for i in (5, 3, 3, 8)]
    episodes = play(Guesser(), 4, options=options, seeds=11)
    assert [(e.index, e.seed, e.group_id) for e in episodes] == [
        (5, 11, "guess/5"),
        (3, 11, "guess/3"),
        (3, 11, "guess/3"),
        (8, 11, "guess/8"),
    ]
    assert options[0] == {"index": 5}
    same = play(Guesser(), 2, options={"index": 6}, seeds=[4, None])
    assert [(e.index, e.seed) for e in same] == [(6, 4), (6, None)]
    assert run_episodes("Test/Guess-v0", Guesser(), 0) == []


def test_environments_are_used_again_and_closed():
    assert all(e.success for e in play(Guesser(), 20, concurrency=3))
    assert len(GuessEnv.made) == 3
    assert all(env.closed for env in GuessEnv.made)


def test_environments_are_replaced_after_an_error():
    def act(observation: str, info: dict[str, Any]) -> str:
        return "crash" if info["index"] % 2 else str(info["index"])

    options = [{"index": i} for i in range(6)]
    episodes = play(ScriptedPolicy(act), 6, options=options, concurrency=1)
    assert [e.stop_reason is StopReason.ERROR for e in episodes] == [False, True] * 3
    assert len(GuessEnv.made) == 3 and all(env.closed for env in GuessEnv.made)


def test_a_straggler_delays_only_itself():
    def act(observation: str, info: dict[str, Any]) -> str:
        if info["index"] == 0 and observation.startswith("Guess"):
            return "sleep:1.5"
        return str(info["index"])

    ends: dict[int, float] = {}

    class Watch(gym.Wrapper[str, str, str, str]):
        def step(self, action: str) -> Any:
            result = self.env.step(action)
            if result[2]:
                ends[result[4]["index"]] = time.monotonic() - start
            return result

    options = [{"index": i} for i in range(40)]
    start = time.monotonic()
    episodes = play(ScriptedPolicy(act), 40, options=options, wrappers=[Watch], concurrency=2)
    assert all(e.success for e in episodes)
    assert ends[0] >= 1.5 and max(end for index, end in ends.items() if index) < 1.2


def test_async_acts_overlap_up_to_the_concurrency():
    policy = Guesser(delay=0.05, use_async=True)
    play(policy, 16, concurrency=8)
    assert policy.most_active == 8


def test_the_first_constructor_that_fails_raises_and_later_ones_are_episodes():
    with pytest.raises(
        ConfigError, match=r"cannot be made: RuntimeError: no more environments .*test_rollout.py, line"
    ):
        play(Guesser(), 3, env_kwargs={"fail_after": 0})
    episodes = play(Guesser(0.05), 2, env_kwargs={"fail_after": 1}, concurrency=2)
    assert episodes[0].success
    assert episodes[1].stop_reason is StopReason.ERROR
    assert episodes[1].error is not None and "no more environments" in episodes[1].error


def test_ids_specs_functions_and_wrappers():
    for env_id in ("Test/Guess-v0", gym.spec("Test/Guess-v0"), GuessEnv, make):
        assert run_episodes(env_id, Guesser(), 1, progress=False)[0].success
    wrappers = ["PrependInstructions", lambda env: gym.wrappers.TransformReward(env, lambda r: 2 * r)]
    (wrapped,) = play(Guesser(), 1, options={"index": 1}, wrappers=wrappers)
    assert wrapped.reward == 2.0
    assert wrapped.steps[0].observation.startswith("Guess the number.") and wrapped.instructions == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": -1}, "n must be an integer of at least 0"),
        ({"group": 0}, "group must be an integer of at least 1"),
        ({"concurrency": 0}, "concurrency must be an integer of at least 1"),
        ({"step_timeout": 0}, "step_timeout must be a number above 0"),
        ({"episode_timeout": -1.0}, "episode_timeout must be a number above 0"),
        ({"seeds": [1, 2]}, "seeds has 2 entries for n=3"),
        ({"seeds": [1, 2, -3]}, "at least 0, got -3"),
        ({"seeds": [1, 2, "a"]}, "seeds must hold int or None"),
        ({"seeds": "abc"}, "seeds must be one int for all"),
        ({"options": [{"index": 1}]}, "options has 1 entries for n=3"),
        ({"options": [1, 2, 3]}, "options must hold Mapping or None"),
        ({"wrappers": "PrependInstructions"}, r"write \['PrependInstructions'\]"),
        ({"wrappers": ["PrependInstruction"]}, "PrependInstructions"),
        ({"wrappers": [5]}, "a wrapper must be a spec .* got 5"),
        ({"env_id": 7}, "env_id must be an id"),
        ({"env_id": "Test/Gues-v0"}, "unknown environment 'Test/Gues-v0'. Did you mean 'Test/Guess-v0'"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    arguments = {"env_id": "Test/Guess-v0", "n": 3, "progress": False, **arguments}
    with pytest.raises(ConfigError, match=message):
        run_episodes(arguments.pop("env_id"), Guesser(), arguments.pop("n"), **arguments)


class BlocksItsLoop:
    """Its async `act` blocks the loop on one task: a mistake that must cost that episode alone."""

    def start(self, env):
        return self

    async def act(self, observation, info):
        if info["index"] == 0:
            time.sleep(1.5)
        await asyncio.sleep(0.01)
        return "answer"


def test_an_async_policy_that_blocks_its_loop_holds_up_nobody_else():
    episodes = run_episodes(
        "AgentR1/GSM8K-v0",
        BlocksItsLoop(),
        12,
        options=[{"index": i} for i in range(12)],
        concurrency=6,
        step_timeout=0.4,
        progress=False,
    )
    assert [e.stop_reason for e in episodes] == [StopReason.STEP_TIMEOUT] + [StopReason.TERMINATED] * 11
