"""Vector environments: as many single ones, whatever is asked of each.

1. Gymnasium's make_vec of every id equals single environments, under random actions, masks, options and None; infos
   included.
2. Gymnasium's sync vectors (async ones: the contract) and its vector wrappers agree with it.
3. Infos keep their types: 1 and 0.75, missing keys, None beside mappings.
4. One that raises is named, and the others' results are kept; it is made anew at its reset.
5. send and recv wait for nobody else; an environment that hangs can be given up; close leaves no thread at work.
"""

import copy
import pickle
import signal
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode

import agent_envs
from agent_envs.errors import BackendError, ConfigError, VectorEnvError
from agent_envs.pictures.picture import alike
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.registration import PICTURE_IDS
from agent_envs.vector.env import TextVectorEnv
from agent_envs.vector.infos import batch_infos
from agent_envs.vector.make import make_vec
from agent_envs.wrappers import apply_wrappers
from tests.helpers import until

TOOL = "AgentR1/GSM8KTool-v0"
PLAIN = "AgentR1/GSM8K-v0"
IDS = (*agent_envs.ENV_IDS, *PICTURE_IDS)


def split_infos(infos, n):
    """The info of each environment, with Python numbers: the inverse of `batch_infos`."""
    rows = [{} for _ in range(n)]
    for key, has in infos.items():
        values = infos.get(key[1:]) if key.startswith("_") else None
        if values is None or not isinstance(has, np.ndarray):
            continue
        parts = split_infos(values, n) if isinstance(values, dict) else values
        for i in np.flatnonzero(has):
            rows[i][key[1:]] = parts[i].item() if isinstance(parts[i], np.generic) else parts[i]
    return rows


def _actor(env, rng):
    policy = ExpertPolicy() if rng.random() < 0.5 else RandomPolicy(int(rng.integers(100)))
    return policy.start(env)


@pytest.mark.parametrize("env_id", IDS)
def test_a_vector_equals_single_environments(env_id):
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)  # noqa: T201
    rng = np.random.default_rng(seed)
    n = 4
    singles = [gym.make(env_id, split="test", max_episode_steps=6) for _ in range(n)]
    envs = gym.make_vec(env_id, n, split="test", max_episode_steps=6)
    observations, infos = envs.reset(seed=3)
    expected = [single.reset(seed=3 + i) for i, single in enumerate(singles)]
    assert alike(list(observations), [e[0] for e in expected])
    assert split_infos(infos, n) == [e[1] for e in expected]
    actors = [_actor(single, rng) for single in singles]
    last, over = copy.deepcopy(expected), [False] * n
    for _ in range(9):
        if any(over) and rng.random() < 0.7:
            mask = np.array(over) | (rng.random(n) < 0.2)
            chosen = [{"index": int(rng.integers(50))} if rng.random() < 0.5 else None for _ in range(n)]
            observations, infos = envs.reset(options={"reset_mask": mask, "env_options": chosen})
            for i in np.flatnonzero(mask):
                last[i] = singles[i].reset(options=chosen[i])
                actors[i], over[i] = _actor(singles[i], rng), False
            assert alike(list(observations), [entry[0] for entry in last])
            assert split_infos(infos, n) == [last[i][1] if mask[i] else {} for i in range(n)]
        actions = [None if over[i] or rng.random() < 0.2 else actors[i].act(last[i][0], last[i][-1]) for i in range(n)]
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        for i, action in enumerate(actions):
            if action is None:
                expected_step = (last[i][0], 0.0, False, False, {})
            else:
                expected_step = singles[i].step(action)
                last[i] = (expected_step[0], expected_step[4])
                over[i] = over[i] or expected_step[2] or expected_step[3]
            got = (observations[i], rewards[i], terminations[i], truncations[i], split_infos(infos, n)[i])
            assert alike(got[0], expected_step[0]) and got[1:] == expected_step[1:]
    envs.close()


_STACKS = [
    ["FormatReward", "InvalidActionPenalty", "StepPenalty"],
    ["MalformedCalls", "ChatMessages", "SlidingWindow(k=2)", "RewardNormalisation"],
    ["RebuildPrompt"],
    ["AsTool", "ToolCallReward"],
]


@pytest.mark.parametrize("env_id", [TOOL, "AgentR1/ALFWorld-v0", "AgentR1/PaperSearch-v0", *PICTURE_IDS])
@pytest.mark.parametrize("mode", ["ours", "sync"])
def test_infos_of_wrapped_environments_come_through_unharmed(env_id, mode):
    for stack in _STACKS:
        try:
            singles = [apply_wrappers(gym.make(env_id), stack) for _ in range(3)]
        except ConfigError:  # a wrapper that is for other environments
            continue
        if mode == "ours":
            envs = make_vec(env_id, 3, wrappers=stack)
        else:
            wrapped = [lambda env, stack=stack: apply_wrappers(env, stack)]
            options = {"autoreset_mode": AutoresetMode.DISABLED}
            envs = gym.make_vec(env_id, 3, vectorization_mode="sync", vector_kwargs=options, wrappers=wrapped)
        last = [single.reset(seed=i) for i, single in enumerate(singles)]
        assert split_infos(envs.reset(seed=0)[1], 3) == [info for _, info in last]
        actors = [
            policy.start(env) for policy, env in zip((RandomPolicy(1), *[ExpertPolicy()] * 2), singles, strict=True)
        ]
        for step in range(4):
            actions = [actor.act(entry[0], entry[-1]) for actor, entry in zip(actors, last, strict=True)]
            actions[2] = "<tool_call>broken" if step == 0 else actions[2]
            last = [single.step(action) for single, action in zip(singles, actions, strict=True)]
            observations, rewards, terminations, truncations, infos = envs.step(tuple(actions))
            assert alike(list(observations), [entry[0] for entry in last])
            assert rewards.tolist() == [entry[1] for entry in last]
            assert split_infos(infos, 3) == [entry[4] for entry in last]
            if (terminations | truncations).any():
                break
        envs.close()


def test_gymnasiums_make_vec_makes_it_and_specs_go_round():
    envs = gym.make_vec(TOOL, 3, split="test", env_wrappers=["FormatReward(weight=0.5)"], max_episode_steps=2)
    assert isinstance(envs, TextVectorEnv) and envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    for spec in (envs.spec, make_vec(TOOL, 3, wrappers=["FormatReward"], split="test", max_episode_steps=2).spec):
        again = gym.make_vec(pickle.loads(pickle.dumps(spec)))
        assert again.num_envs == 3 and again.get_attr("split") == ("test",) * 3
        assert type(again.envs[0]).__name__ == "FormatReward"
        again.reset(seed=0)
        again.step(["<tool_call>"] * 3)
        assert again.step(["<tool_call>"] * 3)[3].all()
    assert isinstance(gym.make_vec(f"agent_envs:{PLAIN}", 2), TextVectorEnv)
    assert "GSM8K" in str(make_vec(gym.spec(PLAIN), 2)) and make_vec(lambda: gym.make(PLAIN), 2).spec is None


def test_gymnasiums_vector_wrappers_go_around_it():
    envs = gym.wrappers.vector.RecordEpisodeStatistics(make_vec(PLAIN, 3))
    envs = gym.wrappers.vector.DictInfoToList(envs)
    _, infos = envs.reset(seed=0)
    assert [info["index"] for info in infos] == [gym.make(PLAIN).reset(seed=i)[1]["index"] for i in range(3)]
    *_, infos = envs.step(("#### 1", None, "#### 2"))
    assert [info.get("episode", {}).get("l") for info in infos] == [1, None, 1]
    options = {"reset_mask": np.array([True, False, True]), "env_options": [{"index": 1}, None, {"index": 2}]}
    _, infos = envs.reset(options=dict(options))
    assert [info.get("index") for info in infos] == [1, None, 2]
    envs.unwrapped.reset(options=options)
    assert options.keys() == {"reset_mask", "env_options"}  # Gymnasium's own take keys out of the caller's mapping


# -- infos -------------------------------------------------------------------------------------------------------------


def test_infos_keep_their_types():
    rows = [
        {"score": 1, "flag": True, "name": "a", "parts": {"x": 1.0}, "found": [1], "big": 1 << 70, "arr": np.ones(2)},
        None,
        {"score": 0.75, "flag": False, "name": None, "parts": {"y": 2}, "found": (), "mixed": 3, "arr": np.zeros(2)},
        {"score": 2, "mixed": "three", "parts": {}, "odd": {"a": 1}},
        {"odd": None, "arr": np.ones(3)},
    ]
    infos = batch_infos(rows)
    assert infos["score"].dtype == np.float64 and infos["score"].tolist() == [1.0, 0.0, 0.75, 2.0, 0.0]
    assert infos["flag"].dtype == np.bool_ and infos["parts"]["x"].dtype == np.float64
    assert infos["_name"].tolist() == [True, False, True, False, False] and infos["arr"].dtype == object
    back = split_infos(infos, 5)
    for row, got in zip(rows, back, strict=True):
        assert got.keys() == (row or {}).keys()
        for key, value in (row or {}).items():
            assert np.array_equal(got[key], value) if isinstance(value, np.ndarray) else got[key] == value
    assert batch_infos([None, None]) == {} and batch_infos([{"a": np.ones(2)}] * 2)["a"].shape == (2, 2)
    assert batch_infos([{"a": np.float32(0.5)}, {}])["a"].dtype == np.float32
    assert batch_infos([{"a": True}, {"a": 1}])["a"].tolist() == [True, 1]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reset_mask": [True]}, "reset_mask must be 2 booleans"),
        ({"reset_mask": [1, 0]}, "reset_mask must be 2 booleans"),
        ({"reset_mask": [False, False]}, "one of them True"),
        ({"env_options": [None]}, "2 mappings or None"),
        ({"env_options": {"index": 1}}, "2 mappings or None"),
        ({"env_options": [None, 3]}, "env_options of environment 1 must be a mapping"),
        ([1], "options must be a mapping"),
    ],
)
def test_reset_options_that_do_not_fit(options, said):
    envs = make_vec(PLAIN, 2)
    with pytest.raises(ConfigError, match=said):
        envs.reset(options=options)


def test_seeds_that_do_not_fit():
    envs = make_vec(PLAIN, 2)
    for seed in ([1], True, 1.5, "seed", {1: 2, 3: 4}):
        with pytest.raises(ConfigError, match="seed must be an integer or 2 of them"):
            envs.reset(seed=seed)
    with pytest.raises(ConfigError, match="each seed must be an integer, got 1.5"):
        envs.reset(seed=[1, 1.5])
    assert envs.reset(seed=np.array([3, 4]))[0] == envs.reset(seed=np.int64(3))[0] == envs.reset(seed=3)[0]


def test_actions_that_cannot_be_carried_out_step_nobody():
    envs = make_vec(TOOL, 2)
    with pytest.raises(ResetNeeded, match="environment 0 was never reset"):
        envs.step(["a", "b"])
    envs.reset(options={"reset_mask": [False, True]})
    with pytest.raises(ResetNeeded, match="environment 0 was never reset"):
        envs.step(["a", "b"])
    assert envs.step([None, "#### 1"])[2].tolist() == [False, True]
    with pytest.raises(ResetNeeded, match="environment 1 has finished its episode: reset it"):
        envs.step([None, "a"])
    for actions in ("ab", ["a"], [None, 3], [None, b"x"], None, 3, {"a": 1, "b": 2}):
        with pytest.raises(ConfigError, match="texts? or None"):
            envs.step(actions)
    assert envs.step([None, None])[1].tolist() == [0.0, 0.0]
    envs.close()
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.step([None, None])
    for n in (0, True, 1.5):
        with pytest.raises(ConfigError, match="num_envs must be an integer of at least 1"):
            make_vec(TOOL, n)
    with pytest.raises(ConfigError, match="is not a text environment"):
        make_vec("CartPole-v1", 2)
    with pytest.raises(ConfigError, match="unknown environment 'AgentR1/NoSuch-v0'"):
        make_vec("AgentR1/NoSuch-v0", 2)
    with pytest.raises(AttributeError):
        agent_envs.vector.make.no_such  # noqa: B018


# -- environments that wait, raise and hang ----------------------------------------------------------------------------


class Slow(gym.Wrapper):
    """Sleeps for as long as the action says, until the gate opens, or until all are there; raises on "boom"."""

    made: list = []
    closed: list = []
    gate = threading.Event()
    together = threading.Barrier(8)

    def __init__(self, env):
        super().__init__(env)
        self.made.append(self)
        self.noted = self.closed  # of this test: a thread that was left behind may close it during the next

    def step(self, action):
        if action == "boom":
            raise BackendError("the server is gone")
        waits = {"gate": self.gate.wait, "together": self.together.wait}
        waits[action](30) if action in waits else time.sleep(float(action))
        return super().step("<tool_call>")

    def close(self):
        self.noted.append(self)
        super().close()


@pytest.fixture
def slow():
    Slow.made, Slow.closed, Slow.gate = [], [], threading.Event()
    envs = make_vec(TOOL, 8, wrappers=[Slow])
    envs.reset(seed=0)
    yield envs
    Slow.gate.set()
    envs.close()


def test_steps_that_wait_wait_together(slow):
    slow.step(["together"] * 8)  # one after the other, none would be done


def test_one_that_raises_is_named_and_the_others_are_kept(slow):
    failed = "2 of 8 environments failed: environment 1: BackendError: the server"
    with pytest.raises(VectorEnvError, match=failed) as caught:
        slow.step(["0", "boom", "0.05", "boom", *["0"] * 4])
    error = caught.value
    assert sorted(error.errors) == [1, 3] and isinstance(error.__cause__, BackendError)
    observations, _, terminations, _, infos = error.results
    assert infos["_task_id"].tolist() == [True, False, True, False] + [True] * 4 and len(observations) == 8
    assert "valid" not in observations[1] and observations[0] != observations[1] and not terminations.any()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(ResetNeeded, match="environment 1 raised an error"):
        slow.step(["0"] * 8)
    assert len(Slow.closed) == 2
    slow.reset(options={"reset_mask": np.arange(8) % 4 == 1})
    assert len(Slow.made) == 9  # number 1 was made anew, number 5 was fit
    slow.step(["0", "0", None, None, *["0"] * 4])
    with pytest.raises(VectorEnvError, match="environment 2: TaskIndexError: .*tasks 0 to 99999") as caught:
        slow.reset(options={"env_options": [{"index": 7}, None, {"index": -1}, *[None] * 5]})
    assert caught.value.results[1]["index"][0] == 7


def test_send_and_recv_wait_for_nobody_else(slow):
    slow.send({0: "gate", 3: "0.01", 5: "gate"})
    assert slow.recv().env_ids.tolist() == [3]
    with pytest.raises(AlreadyPendingCallError, match="the last action of environment 0 is pending"):
        slow.send({0: "0"})
    slow.step([None, "0", None, "0", *[None] * 4])  # the others go on meanwhile
    slow.send_reset([3, 4], seeds=[11, 12], options=[{"index": 2}, None])
    both = slow.recv(min_ready=2)
    assert sorted(both.env_ids) == [3, 4] and both.infos[both.env_ids.tolist().index(3)]["index"] == 2
    assert slow.recv(timeout=0.01).env_ids.size == 0
    Slow.gate.set()
    assert sorted(slow.recv(min_ready=99).env_ids) == [0, 5]
    with pytest.raises(NoAsyncCallError):
        slow.recv()
    slow.send({1: "boom", 2: "0"})
    with pytest.raises(VectorEnvError, match="1 of 8 environments failed: environment 1") as caught:
        slow.recv(2)
    assert caught.value.results.env_ids.tolist() == [2]
    for wrong in ({9: "0"}, {True: "0"}, {-1: "0"}):
        with pytest.raises(ConfigError, match="number must be an integer from 0 to 7"):
            slow.send(wrong)
    with pytest.raises(ConfigError, match="one entry for each of the 2"):
        slow.send_reset([0, 1], seeds=[1])
    with pytest.raises(ConfigError, match="one entry for each"):
        slow.send_reset([0, 0])


def test_one_that_hangs_is_given_up_by_its_reset(slow):
    slow.send({0: "gate", 1: "0"})
    assert slow.recv().env_ids.tolist() == [1]
    assert until(lambda: 0 in slow._fleet._busy)
    slow.reset(options={"reset_mask": np.arange(8) == 0})
    assert len(Slow.made) == 9
    slow.step(["0"] * 8)
    assert Slow.closed == []
    Slow.gate.set()
    assert until(lambda: Slow.closed == [Slow.made[0]])  # by the thread that was left behind
    with pytest.raises(NoAsyncCallError):
        slow.recv()


def test_an_interrupt_gives_up_the_step(slow):
    def interrupt():
        assert until(lambda: len(slow._fleet._busy) == 4)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores interrupts
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            slow.step(["gate"] * 4 + [None] * 4)
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ResetNeeded, match="environment 0 was interrupted"):
        slow.step(["0"] * 8)
    slow.reset(seed=0)
    slow.step(["0"] * 8)


def test_close_leaves_nothing_at_work(slow):
    slow.send({0: "gate"})
    assert until(lambda: 0 in slow._fleet._busy)
    slow.close()
    assert len(Slow.closed) == 7
    Slow.gate.set()
    assert until(lambda: len(Slow.closed) == 8)


def test_attributes_and_rendering():
    envs = make_vec(PLAIN, 2, render_mode="ansi")
    envs.reset(seed=1)
    assert envs.render_mode == "ansi" and all(envs.render()) and envs.np_random_seed == (1, 2)
    envs.set_attr("split", ["a", "b"])
    assert envs.get_attr("split") == ("a", "b") and len(envs.np_random) == 2
    with pytest.raises(ConfigError, match="one entry for each of the 2"):
        envs.set_attr("split", ["a"])
