"""The text adventures of TextWorld: the same as in its own loop, command by command.

Behaviours pinned here:
1. Observations, points and ends are those of `textworld.start`; its own plan wins.
2. The contract of text environments holds.
3. No text of the policy reaches the interpreter as an order to it: no file is written, and it never waits for ever.
4. What is no game is one message.
"""

import os
import shutil
import warnings
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.envs import textworld_process
from agent_envs.errors import DataError
from agent_envs.testing import check_text_env

ENV_ID = "AgentR1/TextWorld-v0"
pytest.importorskip("textworld", reason="needs the extra suites: pip install 'agent-envs[suites]'")

ODD = ("dance", "", "wait", "take everything", "go nowhere", "examine door", "GO NORTH", "look")


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    """The folder that games are made in, for this module."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_ENVS_DATA", str(folder))
        yield folder


@pytest.fixture(scope="module")
def game(games):
    """The path of one generated game."""
    env = gym.make(ENV_ID, split="test", level=2)
    env.reset(options={"index": 0})
    env.close()
    return str(next((games / "textworld-games").glob("*.z8")))


def play_both(env, file, commands) -> tuple[bool, bool]:
    """Compare an episode with TextWorld's own loop; return whether it ended and was won."""
    import textworld

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = textworld.start(file, textworld.EnvInfos(admissible_commands=True, score=True, max_score=True))
    reply, over, info = source.reset(), False, {"success": False}
    assert env.unwrapped._observation == reply.feedback
    before = 0
    for command in commands(env):
        observation, reward, terminated, _, info = env.step(command)
        reply, points, over = source.step(command)
        assert (observation, terminated) == (reply.feedback, over), command
        assert reward == pytest.approx((points - before) / reply.max_score)
        assert info["admissible_commands"] == list(reply.admissible_commands)
        before = points
        if over:
            break
    source.close()
    return over, info["success"]


def planned(env):
    while (action := env.unwrapped.expert_action()) is not None:
        yield action


def odd_then_planned(env):
    yield from ODD
    yield from planned(env)


def wandering(rng, env):
    for _ in range(20):
        yield str(rng.choice([*env.unwrapped.available_actions(), *ODD]))


def test_an_episode_is_that_of_textworld(game):
    env = gym.make(ENV_ID, game=game)
    for commands in (planned, odd_then_planned):
        env.reset(options={"index": 0})
        assert play_both(env, game, commands) == (True, True)
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 3])
def test_many_episodes_are_those_of_textworld(games, level, compared):
    env = gym.make(ENV_ID, split="test", level=level)
    for index in range(compared // 5):
        for episode in range(5):
            env.reset(options={"index": index})
            file = env.unwrapped.state.file
            if episode < 2:
                assert play_both(env, file, odd_then_planned if episode else planned) == (True, True)
            else:
                play_both(env, file, partial(wandering, np.random.default_rng(episode)))
    env.close()


@pytest.mark.parametrize("vectors", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_keeps_the_contract(game, vectors):
    check_text_env(ENV_ID, env_kwargs={"game": game}, vectors=vectors)


@pytest.mark.parametrize(
    "text",
    [
        *("save", "SAVE", "script", "restart", "restore", "quit", "undo", "oops", "again", "tw-print state", "\\x"),
        *("look. save", "look, save", "look then save", "look\nsave\nstolen", "say \\s", "x" * 199, "take\x00", "é"),
    ],
)
def test_no_text_is_an_order_to_the_interpreter(game, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = gym.make(ENV_ID, game=game)
    env.reset(options={"index": 0})
    before = env.unwrapped.anchor()
    observation, reward, terminated, _, info = env.step(text)
    assert "That's not a verb I recognise." in observation and (reward, terminated) == (0.0, False)
    assert info["invalid_action"] and env.unwrapped.state.history == ("unknowable",)
    assert env.unwrapped.anchor() == before
    assert os.listdir(tmp_path) == []
    env.close()


DAMAGES = {
    "cut": lambda data: data[:200_000],
    "scrambled": lambda data: data[:64] + bytes(byte ^ 0x55 for byte in data[64:]),
    "cut early": lambda data: data[:5000],
    "head": lambda data: b"\xff" * 64 + data[64:],
    "zeros": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
}
FIRST = ("cut", "scrambled")  # after each the process starts anew, which takes seconds


@pytest.mark.parametrize(
    "name", [*FIRST, *(pytest.param(n, marks=pytest.mark.slow) for n in DAMAGES if n not in FIRST)]
)
def test_a_damaged_game_ends_no_process_of_the_user(game, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(textworld_process, "_SECONDS", 20.0)
    env = gym.make(ENV_ID, game=game)
    env.reset(options={"index": 0})
    (tmp_path / "g.z8").write_bytes(DAMAGES[name](Path(game).read_bytes()))
    shutil.copy(Path(game).with_suffix(".json"), tmp_path / "g.json")
    with pytest.raises(DataError, match=r"g\.z8: TextWorld"):
        gym.make(ENV_ID, game=str(tmp_path / "g.z8")).reset(seed=0)
    assert play_both(env, game, planned) == (True, True)  # goes on where it stood
    assert sorted(os.listdir(tmp_path)) == ["g.json", "g.z8"]


def test_a_game_that_is_not_there_or_lacks_its_facts_is_one_message(tmp_path):
    with pytest.raises(DataError, match="no file or folder"):
        gym.make(ENV_ID, game="/nowhere/a.z8")
    (tmp_path / "lonely.z8").write_bytes(b"")
    with pytest.raises(DataError, match=r"lonely\.json"):
        gym.make(ENV_ID, game=str(tmp_path / "lonely.z8"))
