"""The games of textarena: the same as in the package's own loop, move by move.

Behaviours pinned here:
1. What is said, rewards and ends are the package's own, alone and against an opponent.
2. A move that a game cannot read is a bad action.
3. One agent plays both seats: each hears what is said to it, and gets its own reward.
"""

import re

import gymnasium as gym
import numpy as np
import pytest

import agent_envs
from agent_envs.episodes.record import StopReason
from agent_envs.errors import BackendError
from agent_envs.policies.policy import Response

ENV_ID = "AgentR1/TextArena-v0"
textarena = pytest.importorskip("textarena", reason="needs the extra suites: pip install 'agent-envs[suites]'")
from agent_envs.envs.textarena import random_move  # noqa: E402

MOVES = {
    "GuessTheNumber-v0": lambda rng: f"[{rng.integers(1, 21)}]",
    "Mastermind-v0": lambda rng: f"[{' '.join(map(str, rng.permutation(6)[:4] + 1))}]",
    "FrozenLake-v0": lambda rng: str(rng.choice(["up", "down", "left", "right", "[nowhere]"])),
    "TowerOfHanoi-v0": lambda rng: f"[{' '.join(rng.permutation(['A', 'B', 'C'])[:2])}]",
    "TicTacToe-v0": lambda rng: f"[{rng.integers(0, 9)}]",
    "Nim-v0": lambda rng: f"[{rng.integers(0, 3)} {rng.integers(1, 4)}]",
}


def _source(name, seed, moves):
    """Yield what the package's own loop says after each move, with the reward and whether the game is over."""
    game = textarena.make(name)
    game.reset(num_players=1 if name in list(MOVES)[:4] else 2, seed=seed)
    rng, told, done, before, heard, reply = np.random.default_rng(seed), "", False, "", "", ""
    for move in [None, *moves]:
        if move is not None:
            done, _ = game.step(move)
        while not done and game.state.current_player_id != 0:
            known, heard = heard, game.get_observation()[1]
            reply = random_move(heard.removeprefix(known).replace(f"\n[Player 1] {reply}", "", 1), rng)
            done, _ = game.step(reply)
        game.state.current_player_id = 0
        before, told = told, game.get_observation()[1]
        yield told.removeprefix(before), (game.close()[0] or {}).get(0, 0) if done else 0, done
        if done:
            return


@pytest.mark.parametrize("name", MOVES)
def test_games_are_those_of_the_package(name, episodes):
    env = gym.make(ENV_ID, env=name, split="test")
    for index in range(episodes):
        rng = np.random.default_rng(index)
        moves = [MOVES[name](rng) for _ in range(60)]
        observation, _ = env.reset(options={"index": index})
        found = (observation, 0, False)
        for number, (said, reward, done) in enumerate(_source(name, 20_000_000 + index, moves)):
            for own in _own(moves[number - 1]) if number else ():
                said = said.replace(own, "", 1)
            assert found == (said.removeprefix("\n"), reward, done)
            if done:
                break
            observation, reward, terminated, truncated, info = env.step(moves[number])
            assert not truncated and info["success"] == (terminated and reward >= 1)
            found = (observation, reward, terminated)
    env.close()


def _own(move):
    """A player's own words, as the package repeats them."""
    return [f"\n[{who}] {form}" for who in ("Player", "Player 0") for form in (move, f"[{move}]")]


def test_a_move_that_a_game_fails_at_is_a_bad_action(monkeypatch):
    env = gym.make(ENV_ID, env="Mastermind-v0", split="test")
    env.reset(options={"index": 1})
    base = type(textarena.make("Mastermind-v0-raw"))
    step = base.step

    def failing(self, action):
        if action == "[boom]":
            self.state.done = True
            raise KeyError(action)
        return step(self, action)

    monkeypatch.setattr(base, "step", failing)
    observation, reward, terminated, _, info = env.step("[boom]")
    assert "KeyError" in observation and (reward, terminated, info["invalid_action"]) == (0, False, True)
    code = env.unwrapped.replayed.at(env.unwrapped.state)._base.state.game_state["secret_code"]
    _, reward, terminated, _, info = env.step(f"[{' '.join(map(str, code))}]")
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_an_opponent_of_ones_own():
    def loses(said, rng):
        return "nothing that is a move"

    env = gym.make(ENV_ID, env="TicTacToe-v0", opponent=loses, player=1)
    _, info = env.reset(seed=0)
    assert not info["success"]

    def fails(said, rng):
        raise ValueError("no idea")

    env = gym.make(ENV_ID, env="TicTacToe-v0", opponent=fails)
    env.reset(seed=0)
    with pytest.raises(BackendError, match="no idea"):
        env.step("[4]")


class _Moves:
    """A model that plays the first move that is legal, for whoever asks."""

    def start(self, env):
        return self

    open = start

    def fork(self, number):
        return self

    def count(self, messages, tools=()):
        return 0

    async def ask(self, messages, tools=(), *, task_id="", limit=0, ordered=True):
        taken = {move for message in messages for move in re.findall(r"\] \[(\d)\]", message["content"])}
        own = {message["content"][1] for message in messages if message["role"] == "assistant"}
        return Response(f"[{min({*'012345678'} - taken - own)}]")


async def _self_play(env, model):
    talks = {}
    while not env.over:
        player = env.info["player"]
        talk = talks.setdefault(player, [{"role": "system", "content": env.instructions}])
        talk += env.messages
        reply = await model.role(player).chat(talk)
        talk.append(reply.message)
        await env.step(reply)


def test_one_agent_plays_both_seats():
    env = gym.make(ENV_ID, env="TicTacToe-v0", player="both")
    episode = agent_envs.run_episode(env, _Moves(), seed=0, agent=_self_play)
    assert episode.stop_reason is StopReason.TERMINATED, episode.error
    players = [step.role for step in episode.steps]
    assert players == ["first", "second"] * 3 + ["first"]  # 0 2 4 6 for the first: a diagonal
    assert [step.reward for step in episode.steps] == [0.0] * 5 + [-1.0, 1.0]
    assert episode.success
    says = [message["content"] for message in episode.steps[1].observation]
    assert "Player 1" in says[1] and "[0]" in says[1]  # the other's move is heard


def test_a_player_hears_nothing_that_is_meant_for_the_other():
    env = gym.make(ENV_ID, env="KuhnPoker-v0", player="both", split="test")
    for index in range(3):
        observation, info = env.reset(options={"index": index})
        seats, heard = {info["player"]: [observation]}, []
        over = False
        while not over:
            moves = re.findall(r"'(\[\w+\])'", observation)
            assert moves, observation
            before = info["player"]
            observation, reward, over, _, info = env.step(moves[-2])
            seats.setdefault(info["player"], []).append(observation)
            assert not info["invalid_action"] and (over or not reward)
            heard.append(before)
        assert {*heard} == {"first", "second"} == {*seats} and info["player"] == before
        (other,) = info["rewards"].items()
        assert other[0] != before and other[1] == -reward
        cards = [re.findall(r"round 1 out of 3 rounds. Your card is: '(\w)'", said[0])[0] for said in seats.values()]
        assert len({*cards}) == 2
