"""Classic games by text, trained by the PyTorch loop; what they say is pinned in tests/wrappers/test_classic_games.py.

Behaviours pinned here:
1. A game without splits is trained on some seeds and evaluated on others; it is told of no split and no data.
2. A game and a wrapper of modules train, as docs/classic_games.md has it.
3. An environment that cannot say how many tasks it has is one message.
"""

import sys
import types

import gymnasium as gym
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agent_envs.adapters.torch.loop import train  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.adapters.torch.tasks import tasks_of  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
GAMES = {
    "FrozenLake-v1": ({"render_mode": "ansi"}, ("TextGame",)),
    "minigrid:MiniGrid-Empty-5x5-v0": (
        {},
        ("boards_by_text:BoardAsText", "TextGame(actions=['left', 'right', 'forward', 'pick', 'drop', 'use', 'done'])"),
    ),
}


class BoardAsText(gym.ObservationWrapper):
    """As docs/classic_games.md has it."""

    def observation(self, observation):
        return f"{observation['mission']}\n{self.env.unwrapped.pprint_grid()}"


def config(name, out, **settings):
    env_kwargs, wrappers = GAMES[name]
    common = {"steps": 1, "tasks": 2, "group": 2, "eval_tasks": 2, "max_response_tokens": 4, "device": "cpu"}
    given = {**common, "env_kwargs": env_kwargs, "wrappers": (*wrappers, "LimitInvalidActions(limit=2)"), **settings}
    return LoopConfig(env=name, out=str(out), **given)


def trained(name, out, model_path):
    records = train(config(name, out, model=model_path))
    assert records[-1]["env/episodes"] == 4 and records[-1]["actor/grad_norm"] >= 0
    assert records[-1]["env/broken"] == 0 and 0 <= records[-1]["val/success"] <= 1


def test_a_game_is_trained_on_some_seeds_and_evaluated_on_others(model_path, tmp_path):
    _, _, pool, held_out, *_ = tasks_of(config("FrozenLake-v1", tmp_path, eval_tasks=50))
    assert len(held_out) == 50 and held_out.min() >= pool > 1000
    trained("FrozenLake-v1", tmp_path / "run", model_path)


@pytest.mark.slow
def test_a_game_of_a_module_trains_with_a_wrapper_of_a_module(model_path, tmp_path, monkeypatch):
    pytest.importorskip("minigrid", reason="needs the extra games: pip install 'agent-envs[games]'")
    module = types.ModuleType("boards_by_text")
    module.BoardAsText = BoardAsText
    monkeypatch.setitem(sys.modules, module.__name__, module)
    trained("minigrid:MiniGrid-Empty-5x5-v0", tmp_path, model_path)


def test_an_argument_that_an_environment_of_a_module_does_not_take_is_one_message(tmp_path):
    pytest.importorskip("minigrid", reason="needs the extra games: pip install 'agent-envs[games]'")
    with pytest.raises(ConfigError, match="sizes"):
        tasks_of(LoopConfig(env="minigrid:MiniGrid-Empty-5x5-v0", out=str(tmp_path), env_kwargs={"sizes": 3}))


def test_an_environment_without_a_number_of_tasks(tmp_path):
    class Spoken(gym.Wrapper):
        instructions, tools = "", ()

    with pytest.raises(ConfigError, match="does not say how many tasks"):
        tasks_of(config("FrozenLake-v1", tmp_path, wrappers=(Spoken,)))
