"""An environment on a server is the environment in this process.

1. Every id gives the same observations, rewards and info, byte for byte, and keeps the whole contract.
2. Errors keep their types; a refused call changes nothing.
3. A lost connection ends the episode with a typed error, and a reset goes on with the tasks in the same order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import pickle
import random
import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest

import agent_envs
from agent_envs import errors
from agent_envs.pictures.picture import alike
from agent_envs.registration import PICTURE_IDS
from agent_envs.serving import EnvServer, RemoteEnv, ServedEnv
from agent_envs.testing import HOSTILE_ACTIONS, check_text_env
from tests.helpers import until
from tests.serving.odd_env import ODD, ODD_ID

pytest.importorskip("aiohttp")
pytest.importorskip("websockets")

TOOL = "AgentR1/GSM8KTool-v0"
IDS = (*agent_envs.ENV_IDS, *PICTURE_IDS)


@pytest.fixture(scope="module")
def server():
    with EnvServer([ServedEnv(TOOL), ServedEnv("AgentR1/GSM8K-v0")], port=0, workers=1) as running:
        yield running


@pytest.fixture(scope="module")
def all_ids():
    """A server of every id that plays in this process, whose data it shares."""
    with EnvServer([ServedEnv(i) for i in IDS], port=0, workers=0) as running:
        yield running


@pytest.fixture(scope="module")
def odd_server():
    with EnvServer([ServedEnv(ODD)], port=0, workers=0) as running:
        yield running


def remote(server, env_id=TOOL, **kwargs):
    return gym.make("AgentR1/Remote-v0", url=server.url, env_id=env_id, **kwargs)


@pytest.mark.parametrize("env_id", PICTURE_IDS)  # TOOL: below, with vectors
def test_the_contract_holds_on_a_server(all_ids, env_id):
    check_text_env("AgentR1/Remote-v0", env_kwargs={"url": all_ids.url, "env_id": env_id}, tasks=2, vectors=False)
    assert until(lambda: all_ids.pool.episodes == 0)


def test_vectors_of_remote_environments(server):
    check_text_env("AgentR1/Remote-v0", env_kwargs={"url": server.url})


@pytest.mark.parametrize("env_id", IDS)
def test_every_id_is_the_same_here_and_there(all_ids, env_id):
    seed = random.randrange(10**6)
    print("seed", seed)  # noqa: T201
    choose = random.Random(seed)
    here, there = gym.make(env_id, split="test"), remote(all_ids, env_id, split="test")
    bases = (here.unwrapped, there.unwrapped)
    for name in ("instructions", "tools", "tool_instructions", "num_tasks", "observation_space", "action_space"):
        assert getattr(bases[0], name) == getattr(bases[1], name)
    for episode in range(3):
        how = {"seed": seed} if episode == 0 else {} if episode == 1 else {"options": {"index": seed % 100}}
        assert alike(here.reset(**how), there.reset(**how))
        rngs = [np.random.default_rng(seed) for _ in bases]
        for _ in range(6):
            action = bases[0].expert_action()
            assert action == bases[1].expert_action()
            drawn = np.random.default_rng(int(rngs[0].integers(2**63)))
            demos = [base.demo_action(rng, 0.5) for base, rng in zip(bases, (drawn, rngs[1]), strict=True)]
            assert demos[0] == demos[1]
            assert bases[0].available_actions() == bases[1].available_actions()
            assert bases[0].prompt_state() == bases[1].prompt_state()
            there.unwrapped.restore(there.unwrapped.snapshot())
            odd = choose.choice(HOSTILE_ACTIONS)
            action = choose.choice([odd, demos[0] or odd, action or odd, action or odd])
            results = [env.step(action) for env in (here, there)]
            assert alike(*results)
            assert [type(value) for value in results[0]] == [type(value) for value in results[1]]
            if results[0][2] or results[0][3]:
                break
        assert rngs[0].random() == rngs[1].random()
    here.close()
    there.close()


def test_calls_are_formatted_and_rollouts_work_at_concurrency_64(server):
    env = remote(server)
    assert env.unwrapped.format_call("calculator", {"expression": "1+1"}) == gym.make(TOOL).unwrapped.format_call(
        "calculator", {"expression": "1+1"}
    )
    env.close()
    arguments = {"url": server.url, "split": "test"}
    expert = agent_envs.policies.ExpertPolicy()
    there = agent_envs.run_episodes("AgentR1/Remote-v0", expert, 96, env_kwargs=arguments, progress=False)
    here = agent_envs.run_episodes(TOOL, expert, 96, env_kwargs={"split": "test"}, progress=False)
    assert [e.error for e in there] == [None] * 96
    assert [[(s.action, s.reward, s.info) for s in e.steps] for e in there] == [
        [(s.action, s.reward, s.info) for s in e.steps] for e in here
    ]
    assert until(lambda: not server.pool.open and server.pool.episodes == 0)


def test_errors_keep_their_types(server):
    env = remote(server).unwrapped
    with pytest.raises(gym.error.ResetNeeded, match="before the first reset|reset\\(\\) before|comes before"):
        env.step("x")
    with pytest.raises(errors.TaskIndexError, match="0 to 99999"):
        env.reset(options={"index": 10**9})
    with pytest.raises(errors.ConfigError, match="a reset option must be one of 'index', 'question'"):
        env.reset(options={"indx": 3})
    with pytest.raises(errors.ConfigError, match="must be an integer"):
        env.reset(options={"index": "3"})
    with pytest.raises(TypeError, match="an action must be a string, got int: 3"):
        env.step(3)
    with pytest.raises(TypeError):
        env.reset(options={"index": object()})
    assert (len(env.tasks), env.tasks.split, env.parser.name) == (100_000, "train", "hermes")
    with pytest.raises(errors.ConfigError, match="stay on its server"):
        env.tasks[0]
    with pytest.raises(errors.ConfigError, match="stay on its server"):
        _ = env.task
    env.reset(seed=1)
    env.step("#### 1")
    with pytest.raises(gym.error.ResetNeeded, match="the episode is over"):
        env.step("x")
    env.reset(seed=1)  # all of that left the connection usable
    env.close()


def test_broken_environments_are_typed_errors_and_do_no_harm(odd_server, caplog):
    env = remote(odd_server, ODD_ID).unwrapped
    env.reset(seed=0)
    with pytest.raises(errors.BackendSlowError, match="engine is slow"):
        env.step("backend")
    with pytest.raises(errors.BackendBusyError, match="engine is busy"):
        env.step("busy")
    with pytest.raises(errors.BackendError, match="KeyError in the environment") as caught:
        env.step("bug")
    assert "secret" not in str(caught.value) and "secret detail" in caplog.text
    for action in ("exit", "stop"):
        with pytest.raises(errors.BackendError, match="(SystemExit|StopIteration) in the environment"):
            env.step(action)
    with pytest.raises(TypeError, match="cannot be sent as JSON"):
        env.step("object")
    assert env.step("asked")[0] == "1"  # the busy engine, once
    observation, reward, _, _, info = env.step("odd")
    assert (observation, reward, info["n"], info["a"]) == ("\x00\u2028 \U0001f600", 0.1, 3, [0, 1])
    env.close()


def test_what_cannot_be_connected_to(server, fake_service, monkeypatch):
    odd = fake_service(lambda asked, number: (200, {"hello": "there"}))
    for url, arguments, error, words in (
        ("127.0.0.1:8000", {}, errors.ConfigError, "url must be a server's address"),
        ("http://a:b@127.0.0.1:8000", {}, errors.ConfigError, "without a login"),
        ("http://127.0.0.1:9", {"connect_timeout": 0.2}, errors.BackendDownError, "agentr1 serve"),
        (odd.url, {"connect_timeout": 1}, errors.BackendReplyError, "is not a server|status 200"),
        (server.url, {"env_id": "AgentR1/GSM9K-v0"}, errors.ConfigError, "there is nothing at.*GSM8K-v0"),
        (server.url, {"env_kwargs": {"hops": 2}}, errors.ConfigError, "may choose split, got hops"),
        (server.url, {"env_kwargs": {"x": "y" * 60_000}}, errors.ConfigError, "may choose split, got x"),
        (server.url, {"env_kwargs": {"x": "y" * 70_000}}, errors.ConfigError, "of 65536 characters"),
        (server.url, {"split": "../../etc"}, errors.ConfigError, "split must be a name"),
        (server.url, {"env_kwargs": {"split": object()}}, errors.ConfigError, "plain JSON values"),
        (server.url, {"timeout": 0}, errors.ConfigError, "timeout must be"),
    ):
        with pytest.raises(error, match=words):
            RemoteEnv(url, **arguments)
    from agent_envs.serving import client as connection

    monkeypatch.setattr("agent_envs.errors.metadata.version", lambda package: "9.1")
    connection._check_release.cache_clear()
    with pytest.raises(errors.ConfigError, match=r"websockets<18,>=15, found websockets 9\.1"):
        RemoteEnv(server.url)
    with pytest.raises(errors.ConfigError, match=r"aiohttp<4,>=3\.11, found aiohttp 9\.1"):
        EnvServer([ServedEnv(TOOL)], port=0, workers=0).start()
    monkeypatch.undo()
    monkeypatch.setattr("agent_envs.serving.client.PROTOCOL", 0)
    with pytest.raises(errors.ConfigError, match="speaks protocol 1.*same version"):
        RemoteEnv(server.url)


def test_what_a_strange_server_says_is_a_typed_error():
    from websockets.sync.server import serve

    about = {
        "protocol": 1, "max_message": 1000, "split": "train", "num_tasks": 3, "messages": False, "parser": [],
        "observation_length": 10, "action_length": 10, "instructions": "", "tools": [], "tool_instructions": "",
    }  # fmt: skip
    episode = {"text": "Begin.", "info": {}, "instructions": "", "tools": [], "tool_instructions": ""}
    answers: list[object] = []

    def answer(ws):
        for _ in ws:
            ws.send(json.dumps(answers.pop(0)))

    with serve(answer, "127.0.0.1", 0) as strange:
        thread = threading.Thread(target=strange.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{strange.socket.getsockname()[1]}"
        for key, wrong, words in (
            ("num_tasks", None, "no valid num_tasks"),
            ("tools", None, "no valid tools"),
            ("action_length", -1, "no valid action_length"),
        ):
            answers[:] = [{"type": "hello", "data": {**about, key: wrong}}]
            with pytest.raises(errors.BackendReplyError, match=words):
                RemoteEnv(url)
        for first in (
            [],
            {"type": "observation"},
            {"data": {}},
            {"data": {"observation": {**episode, "info": 3}}},
            {"data": {"observation": {**episode, "tools": 3}}},
            {"data": {"observation": {**episode, "text": None}}},
            {"type": "error", "data": {"message": "\x1b[2J", "error": "SystemExit"}},
        ):
            answers[:] = [{"type": "hello", "data": about}, first]
            env = RemoteEnv(url)
            with pytest.raises((errors.BackendError, errors.ConfigError)) as caught:
                env.reset(seed=0)
            assert "\x1b" not in str(caught.value)
            env.close()
        answers[:] = [{"type": "hello", "data": about}, {"data": {"observation": episode}}]
        env = RemoteEnv(url)
        assert env.reset(seed=0) == ("Begin.", {})
        for reward in ("much", 10**400):
            answers[:] = [{"data": {"observation": episode, "reward": reward}}]
            with pytest.raises(errors.BackendReplyError, match="expected a number as reward"):
                env.step("x")
        answers[:] = [{"data": {}}]
        with pytest.raises(errors.BackendReplyError, match="expected a text, got None"):
            env.snapshot()
        env.close()
        strange.shutdown()
        thread.join()


def test_a_server_without_room_is_asked_again(server, monkeypatch):
    env, patient = remote(server, busy_timeout=0.2), remote(server)
    env.reset(seed=0)
    with monkeypatch.context() as busy:
        busy.setattr(server.pool, "waiting", 10**6)
        with pytest.raises(errors.BackendBusyError, match="too many messages are waiting"):
            env.step("#### 1")
        threading.Timer(0.3, busy.undo).start()
        assert patient.reset(seed=0)[1]["task_id"]
    assert env.step("#### 1")[2]  # nothing was lost
    env.close()
    patient.close()


def test_a_lost_connection_ends_the_episode_and_the_last_seed_says_how_it_goes_on(server):
    here, there = gym.make(TOOL), remote(server)
    rng = np.random.default_rng(5)
    assert here.reset(seed=5) == there.reset(seed=5)
    there.unwrapped._connected()._ws.socket.shutdown(2)
    with pytest.raises(errors.BackendDownError, match="ended"):
        there.step("x")
    with pytest.raises(gym.error.ResetNeeded, match="closed or lost"):
        there.step("x")
    with pytest.raises(gym.error.ResetNeeded):
        there.unwrapped.expert_action()
    assert here.reset(seed=int(rng.integers(2**63))) == there.reset()
    there.unwrapped._connected()._ws.socket.shutdown(2)
    assert here.reset(seed=int(rng.integers(2**63))) == there.reset()  # the reset itself notices
    assert here.reset() == there.reset()
    assert here.step("#### 1") == there.step("#### 1")
    there.close()


def test_a_snapshot_outlives_its_connection_and_is_tied_to_its_environment(server):
    env = remote(server).unwrapped
    env.reset(seed=2)
    point = pickle.loads(pickle.dumps(env.snapshot()))
    first = env.step("x")
    env.close()
    with pytest.raises(gym.error.ResetNeeded, match="closed or lost"):
        env.step("x")
    assert env.format_call("calculator", {"expression": "1"})
    with pytest.raises(gym.error.ResetNeeded, match="before"):
        env.step("x")
    env.restore(point)
    assert env.step("x") == first
    other = remote(server, "AgentR1/GSM8K-v0").unwrapped
    with pytest.raises(errors.ConfigError, match="not a snapshot of this environment"):
        other.restore(point)
    for forged in ("", "AAAA", point.state[:-8] + "AAAAAAA=", "\ud800", 3, None, object()):
        with pytest.raises(errors.ConfigError, match="not a snapshot|expected a snapshot"):
            env.restore(dataclasses.replace(point, state=forged))
    env.restore(point)
    env.close()
    other.close()


def test_environments_can_be_pickled_and_used_after_a_fork(server):
    env = remote(server).unwrapped
    question = env.reset(seed=3)
    other = pickle.loads(pickle.dumps(env))
    with pytest.raises(gym.error.ResetNeeded):
        other.step("x")
    assert other.reset(seed=3) == question
    assert env.step("#### 1") == other.step("#### 1")
    other.close()
    question = env.reset(seed=3)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child() -> None:
        with contextlib.suppress(gym.error.ResetNeeded):
            env.step("x")
            answers.put("the child plays its parent's episode")
        answers.put(env.reset(seed=3))
        env.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        process = context.Process(target=child)
        process.start()
    process.join(60)
    assert answers.get() == question
    assert env.step("#### 1")[2]
    env.close()


def test_time_outs_of_the_client_close_the_connection(odd_server, tmp_path):
    env = remote(odd_server, ODD_ID, timeout=0.3).unwrapped
    env.reset(seed=0)
    with pytest.raises(errors.BackendSlowError, match="0.3 seconds"):
        env.step(f"wait {tmp_path / 'go'}")
    with pytest.raises(gym.error.ResetNeeded):
        env.step("x")
    (tmp_path / "go").touch()
    assert env.reset(seed=0)[0] == "Begin."
    env.close()
    assert until(lambda: odd_server.pool.episodes == 0)


def test_an_environment_that_is_forgotten_lets_go_of_its_place(server):
    env = remote(server)
    env.reset(seed=0)
    assert server.pool.episodes == 1
    del env
    assert until(lambda: server.pool.episodes == 0)


def test_wrappers_on_the_server_are_part_of_the_environment():
    served = ServedEnv(TOOL, {"split": "test"}, ["PrependInstructions", "FormatReward(weight=0.5)"])
    with EnvServer([served], port=0, workers=0) as server:
        env = RemoteEnv(server.url)
        here = agent_envs.wrappers.apply_wrappers(gym.make(TOOL, split="test"), served.wrappers)
        assert env.instructions == "" and env.reset(seed=1) == here.reset(seed=1)
        assert env.step("#### 1") == here.step("#### 1")
        with pytest.raises(errors.ConfigError, match="may choose nothing"):
            RemoteEnv(server.url, split="train")
        RemoteEnv(server.url, split="test", data="generated").close()
        with pytest.raises(errors.ConfigError, match="may choose nothing, got data"):
            RemoteEnv(server.url, data="official")
        env.close()


def test_observations_that_are_whole_prompts():
    served = ServedEnv(TOOL, {}, ["ChatMessages", "SlidingWindow(k=2)"])
    with EnvServer([served], port=0, workers=0) as server:
        here, there = served.make({}), gym.make("AgentR1/Remote-v0", url=server.url)
        assert there.observation_space == here.observation_space and there.unwrapped.instructions == ""
        assert here.reset(seed=4) == there.reset(seed=4)
        call = there.unwrapped.format_call("calculator", {"expression": "6*7"})
        for action in (call, "\ud800 lone", call, call):
            results = here.step(action), there.step(action)
            assert results[0] == results[1] and isinstance(results[0][0], list)
            if results[0][2]:
                break
        there.close()
        episodes = agent_envs.run_episodes(
            "AgentR1/Remote-v0", agent_envs.policies.ExpertPolicy(), 4, env_kwargs={"url": server.url}, progress=False
        )
        assert all(e.success for e in episodes) and isinstance(episodes[0].steps[0].observation, list)


def test_a_trainer_takes_its_tasks_from_a_server(server, tmp_path):
    if importlib.util.find_spec("verl") is None:  # to import it takes seconds
        pytest.skip("verl is not installed")
    from agent_envs.adapters.verl.config.composed import RunConfig
    from agent_envs.adapters.verl.run.tasks import choose_tasks

    here = RunConfig(
        env=TOOL, algo="grpo", preset="cpu-tiny", steps=2, data="generated", split="train", env_kwargs={},
        demo_env_kwargs={}, wrappers=(), out=tmp_path, model=None, seed=0, warm_start=0, demo_noise=0.0,
        val_fraction=0.1,
    )  # fmt: skip
    there = dataclasses.replace(here, env="AgentR1/Remote-v0", env_kwargs={"url": server.url})
    sizes = {"tasks_per_step": 16, "validation_tasks": 256}
    assert choose_tasks(there, **sizes) == choose_tasks(here, **sizes)
