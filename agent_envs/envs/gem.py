"""The environments of the package gem-llm, by their id: games in many steps, and what else it registers.

    said    You are playing Mastermind. You have to guess the secret 2 digit code within 10 turns. ...
    action  \\boxed{3 5}

Texts, rewards and ends are the package's own (https://github.com/axon-rl/gem, Apache 2.0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent_envs.checks import option_mapping
from agent_envs.envs.foreign import OwnDraws, require_trust
from agent_envs.envs.seeded_game import SeededGame
from agent_envs.errors import ConfigError, MissingExtraError, did_you_mean, first_line
from agent_envs.text_env import Outcome

__all__ = ["GemEnv"]

_GAMES = "game:"
# What wins a game, by its class: read from the hidden state.
_WINS: Mapping[str, Callable[[Any], str]] = {
    "GuessTheNumberEnv": lambda game: f"\\boxed{{{game.game_number}}}",
    "MastermindEnv": lambda game: f"\\boxed{{{' '.join(map(str, game.game_code))}}}",
}


class _Reply(NamedTuple):
    said: str
    reward: float = 0.0
    over: bool = False
    out_of_turns: bool = False


class _Game:
    """An environment of the package in progress, with random numbers of its own."""

    def __init__(self, env: str, config: Mapping[str, Any], seed: int) -> None:
        self._playing = OwnDraws(seed).playing
        with self._playing():
            self.game = _made(env, config)
            said, info = self.game.reset(seed=seed)
        self.first = _Reply(_joined(said, info))

    def act(self, action: str) -> _Reply:
        with self._playing():
            said, reward, terminated, truncated, info = self.game.step(action)
        over = bool(terminated or truncated)
        return _Reply(said if over else _joined(said, info), float(reward), over, bool(truncated))

    def close(self) -> None:
        """A game holds nothing but memory."""


def _joined(said: str, info: Mapping[str, Any]) -> str:
    """Return what was said with the state that the package gives beside it for the next prompt."""
    return f"{said}\n{info['suffix']}" if info.get("suffix") else said


def _package() -> Any:
    """Import the package; it sets up everybody's logging, which is undone."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        import gem
        import gem.envs  # which registers them
        from gem.envs import registration
    except ImportError as e:
        raise MissingExtraError(e.name or "gem", extra="gem") from e
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
    return gem, registration.ENV_REGISTRY


def _made(env: str, config: Mapping[str, Any]) -> Any:
    """Make an environment of the package; a ConfigError says why it cannot be."""
    gem, registry = _package()
    if env not in registry:
        raise ConfigError(f"gem has no environment {env!r:.100}.{did_you_mean(env, _names(registry))}")
    try:
        return gem.make(env, **config)
    except LookupError as e:  # NLTK's, for a list of words that is not there
        raise ConfigError(
            f"{env!r} needs data that is not on this machine; fetch NLTK's lists of words with: python -m "
            f"nltk.downloader words ({str(e).strip('* ')[:80]})"
        ) from e
    except Exception as e:
        raise ConfigError(f"{env!r} cannot be made: {first_line(e)[:300]}") from e


def _names(registry: Mapping[str, Any]) -> list[str]:
    """Return the games of the package: what plays without data from the network."""
    return sorted(name for name in registry if name.startswith(_GAMES))


class GemEnv(SeededGame):
    """Play a game of gem, or another environment that it registers.

    ## Description
    Games in many steps (Mastermind, Minesweeper, Sokoban, Sudoku, 2048 and others) of the package gem-llm, which the
    extra `gem` installs; with `trust=True` also its mathematics, questions and programs.

    ## Action Space
    Any text; the games read what is in the last `\\boxed{}` of the form that their rules say.

    ## Observation Space
    Text: the rules at reset, then what the game answers; each followed by the state that the package gives for the next
    prompt (`info["suffix"]` there), while the game goes on.

    ## Starting State
    The game of a seed drawn from the split, or `options={"index": i}`.

    ## Rewards
    The package's own, in every step. A text without a move is -0.1 and ends the game, as released.

    ## Episode End
    Terminates when the game is over, which it also is after its own number of turns. Truncated after 300 steps.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (what was said last), `invalid_action` (the reward is negative: no
    move was found), `score` (the sum of rewards), `success` (the game ended with a reward before its turns ran out),
    `reward_components` (`game`).

    ## Arguments
    `gym.make("AgentR1/Gem-v0", env="game:Mastermind-v0-easy", split="train")`
    - `env`: an id of the package.
    - `config`: arguments of the environment, such as `{"max_turns": 5}`.
    - `split`: "train" (100,000 seeds), "validation" or "test" (1,000 each).
    - `trust`: needed by what is no game: its scoring may run the policy's text, and its data is fetched.

    ## Data
    Generated by the package from seeds. Splits share no seed; a game with few beginnings has the same ones in all.
    Wordle, Hangman and WordSearch need NLTK's list of words, which they fetch.

    ## Version History
    - v0: first version
    """

    recorded_arguments = ("env",)  # whatever is no game needs `trust`
    instructions = "Play the game that is described. Write each move inside \\boxed{}, as its rules say."

    def __init__(
        self,
        *,
        env: str = "game:Mastermind-v0-easy",
        config: Mapping[str, Any] | None = None,
        trust: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(env=env, **kwargs)
        self.config, self.trust = option_mapping(config), trust
        _, registry = _package()
        if env in registry and not env.startswith(_GAMES):
            require_trust(trust, f"the scoring of {env!r}")
        self.open_game(0)

    def open_game(self, seed: int) -> _Game:
        return _Game(self.env, self.config, seed)

    def act(self, action: str) -> Outcome:
        before = self._paid()
        reply, problem = self.played(action)
        if reply is None:
            return Outcome(problem, invalid_action=True, score=before)
        return Outcome(
            reply.said,
            reward=reply.reward,
            terminated=reply.over,
            invalid_action=reply.reward < 0,
            score=before + reply.reward,
            success=reply.over and not reply.out_of_turns and reply.reward > 0,
            components={"game": reply.reward},
        )

    def _paid(self) -> float:
        return float(sum(reply.reward for _, reply in self.state.done))

    def expert_action(self) -> str | None:
        """Return the winning move of the games whose hidden state is one; None for all others."""
        game = self._replayed.at(self.state).game
        win = _WINS.get(type(game).__name__)
        return None if win is None else win(game)
