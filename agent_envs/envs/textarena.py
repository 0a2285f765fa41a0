"""The games of the package textarena: those of one player, and those of two against an opponent.

    said    [GAME] You are playing Mastermind. You have to guess a secret code of 4 digits ...
    action  [1 2 3 4]

Games, rules and rewards are the package's own (https://github.com/LeonGuertler/TextArena, MIT).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from agent_envs.checks import choice, integer, load_function
from agent_envs.envs.foreign import OwnDraws, SeededGame, made
from agent_envs.envs.replayed import Reply
from agent_envs.errors import BackendError, BackendReplyError, ConfigError, check_release, first_line
from agent_envs.text_env import Outcome

_MOVE = re.compile(r"\[([^\[\]\n]{1,40})\]")
_LONGEST_MOVE = 4096  # characters: games search moves with patterns that take the square of this in time
_MOST_TURNS = 1000  # of an opponent in a row

_Opponent = Callable[[str, np.random.Generator], str]

_SEATS = ("first", "second")


@dataclass(frozen=True, slots=True)
class _Turn(Reply):
    """What a game says to whoever is next."""

    player: int = 0
    """The seat of who is next, or who moved last if the game is over."""
    rewards: dict[str, float] = field(default_factory=dict)
    """At the end, the reward of the other player of a game of two."""


def random_move(said: str, rng: np.random.Generator) -> str:
    """Return one of the moves in brackets in the last line that has any, which is where games list them.

    >>> random_move("[GAME] Your move.\\n[GAME] Available moves: [4]", np.random.default_rng(0))
    '[4]'
    """
    lines = [re.sub(r"^\[(?:GAME|Player \d+)\]", "", line) for line in said.splitlines()]
    moves = next((found for line in reversed(lines) if (found := _MOVE.findall(line))), ["0"])
    return f"[{moves[int(rng.integers(len(moves)))]}]"


class _Game:
    """A game in progress, seen from one seat, or from both if `player` is None, with random numbers of its own."""

    def __init__(self, env: str, seed: int, player: int | None, opponent: _Opponent | None) -> None:
        import textarena
        from textarena.envs.registration import ENV_REGISTRY

        games = (name for name in ENV_REGISTRY if not name.endswith(("-raw", "-train")))  # not with other wrappers
        self._player, self._opponent = player, opponent
        self._rng = np.random.default_rng(seed)
        self._playing = OwnDraws(seed).playing
        with self._playing():
            self._game = made("textarena", env, ENV_REGISTRY, games, lambda: textarena.make(env))
            _started(self._game, seed)
            self._base = self._game
            while hasattr(self._base, "env"):
                self._base = self._base.env
        self.players = self._base.state.num_players
        alone = self.players == 1 or opponent is not None
        self.first = self._until_ones_turn(False, player or 0) if alone else _Turn("")

    def act(self, action: str) -> _Turn:
        state = self._base.state
        player = state.current_player_id
        before = vars(state).get("error_count", 0)
        with self._playing():
            done, _ = self._game.step(action)
        invalid = vars(state).get("error_count", 0) > before or bool(
            state.game_info.get(player, {}).get("invalid_move")
        )
        return replace(self._until_ones_turn(bool(done), player), invalid=invalid)

    def close(self) -> None:
        """A game holds nothing but memory."""

    def _until_ones_turn(self, done: bool, player: int) -> _Turn:
        """Have the opponent play until it is one's turn, or the game is over; `player` moved last."""
        state = self._base.state
        for _ in range(_MOST_TURNS):
            if done or self._player in (None, state.current_player_id):
                break
            assert self._opponent is not None
            try:
                move = self._opponent(self._said_to(state.current_player_id), self._rng)
            except Exception as e:
                raise BackendError(f"the opponent failed: {type(e).__name__}: {first_line(e)}") from e
            if not isinstance(move, str):
                raise ConfigError(f"the opponent must return its move as text, got {type(move).__name__}")
            with self._playing():
                done = bool(self._game.step(move)[0])
        else:
            raise BackendReplyError(f"the opponent played {_MOST_TURNS} turns in a row")
        if not done:
            return _Turn(self._said_to(state.current_player_id), player=state.current_player_id)
        paid = [float((state.rewards or {}).get(seat, 0.0)) for seat in range(2)]
        said = self._said_to(player)
        return _Turn(said, paid[player], done, player=player, rewards={_SEATS[1 - player]: paid[1 - player]})

    def _said_to(self, player: int) -> str:
        """Return what a player has not read yet, without its own words."""
        state = self._base.state
        messages, state.observations[player] = state.observations[player], []
        if player == state.current_player_id:
            state.observations[player] = messages
            with self._playing():
                messages = self._base.get_observation()[1]
        named = {**state.role_mapping, -1: "GAME"}
        return "\n".join(
            f"[{named.get(sender, f'Player {sender}')}] {message}"
            for sender, message, _ in messages
            if sender != player
        )


def _started(game: Any, seed: int) -> None:
    """Begin a game: of one player if it is one for a single player, else of two."""
    import textarena

    with contextlib.suppress(AssertionError, ValueError):
        game.reset(num_players=1, seed=seed)
        if isinstance(game.state, textarena.SinglePlayerState):
            return
    try:
        game.reset(num_players=2, seed=seed)
    except (AssertionError, ValueError) as e:
        raise ConfigError(f"the game cannot be begun with one player or two: {first_line(e)}") from e


class TextArenaEnv(SeededGame):
    """Play a game of textarena, alone or against an opponent.

    ## Description
    Board games, cards, puzzles and negotiations of the package textarena, which the extra `suites` installs: those
    of one player, and those of two against a policy given by name.

    ## Action Space
    Any text; the game reads what follows the last `</think>`, at most 4,096 characters. Most look for a move in square
    brackets. Where the package puts brackets around a text without any, so does this.

    ## Observation Space
    Text: the rules and the board at reset, then what the game and the opponent have said since, one
    `[GAME] ...` or `[Player 1] ...` for each message, without the player's own words.

    ## Starting State
    The game of a seed drawn from the split, or `options={"index": i}`.

    ## Rewards
    At the end the package's own reward of the player: in most games 1 for a win, -1 for a loss or a second invalid
    move, 0 for a draw; in some a share of the task that is done.

    ## Episode End
    Terminates when the game is over, which includes the game's own limit of turns.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (what was said last), `invalid_action` (the game calls the move
    invalid or fails at it, in which case nothing has happened), `score` (the reward), `success` (the reward is 1),
    `reward_components` (`game`). With `player="both"` also `player` ("first" or "second", whose turn it is) and at the
    end `rewards`, the other player's; `reward`, `score` and `success` are then those of the player who moved.

    ## Arguments
    `gym.make("AgentR1/TextArena-v0", env="Mastermind-v0", split="train")`
    - `env`: a game's id in the package.
    - `opponent`: for games of two: "random" (one of the moves that the game lists in brackets), or
      "module:function", a function of what the game said to the opponent since its last move and of a generator.
    - `player`: the seat, 0 or 1, or "both": then there is no opponent, and each observation is what is said to the
      player whose turn it is, so that an agent plays both as two roles.
    - `split`: "train" (100,000 seeds), "validation" or "test" (1,000 each).

    ## Data
    Generated by the package from seeds. Splits share no seed; a game with few or one beginning has the same ones in
    all. Games that need a judge on the network or word lists that the package does not bring say so.
    """

    recorded_arguments = ("player",)  # some games ask a judge on the network
    instructions = "Play the game that is described. Write each move as its rules say, in square brackets."

    def __init__(
        self,
        *,
        env: str = "Mastermind-v0",
        opponent: str | _Opponent = "random",
        player: int | Literal["both"] = 0,
        **kwargs: Any,
    ) -> None:
        check_release("textarena", "suites")
        super().__init__(env=env, **kwargs)
        self.player = player if player == "both" else integer("player", player, minimum=0, maximum=1)
        self._against = random_move if opponent == "random" else load_function(opponent, "opponent")
        players = _Game(self.env, 0, 0, None).players
        choice("player", player, (0,) if players == 1 else (0, 1, "both"))

    def open_live(self, start: int) -> _Game:
        return _Game(self.env, start, None if self.player == "both" else self.player, self._against)

    def info(self, outcome: Outcome) -> dict[str, Any]:
        turn = self.state.last
        rewards = {"rewards": turn.rewards} if turn.done else {}
        return super().info(outcome) | ({"player": _SEATS[turn.player], **rewards} if self.player == "both" else {})

    def act(self, action: str) -> Outcome:
        move = action.rpartition("</think>")[2]
        if len(move) > _LONGEST_MOVE:
            said = f"The move has {len(move)} characters; the game reads at most {_LONGEST_MOVE}."
            return Outcome(said, invalid_action=True)
        return super().act(move)
