"""Hostile game files: TextWorld evaluates expressions in a game's grammar, so only harmless ones reach it."""

import importlib.util
import json

import gymnasium as gym
import pytest

from agent_envs.cli.main import main
from agent_envs.errors import DataError

if importlib.util.find_spec("textworld") is None:
    pytest.skip("the original ALFWorld engine is not installed", allow_module_level=True)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').mkdir('MARK')",
        "(lambda: open('MARK', 'w'))()",
        "r.name.__class__",
        "9 * 9",
    ],
)
@pytest.mark.parametrize("engine", ["native", "textworld"])
def test_a_grammar_runs_nothing(expression, engine, tmp_path):
    games, mark = tmp_path / "games", tmp_path / "mark"
    assert main(["generate", "alfworld", "--n", "1", "--out", str(games), "--quiet"]) == 0
    [file] = games.rglob("game.tw-pddl")
    game = json.loads(file.read_text())
    assert "#look.feedback#" in game["grammar"]
    hostile = "{" + expression.replace("MARK", str(mark)) + "}#look.feedback#"
    file.write_text(json.dumps({**game, "grammar": game["grammar"].replace("#look.feedback#", hostile, 1)}))
    env = gym.make("AgentR1/ALFWorld-v0", data=str(games), engine=engine)
    with pytest.raises(DataError, match="grammar"):
        env.reset(options={"index": 0})
    env.close()
    assert not mark.exists()
