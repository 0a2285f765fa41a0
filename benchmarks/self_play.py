"""Self-play of an agent with two roles on Kuhn poker and Nim, measured by its exact exploitability.

    python benchmarks/self_play.py --game kuhn --seed 0 --out runs/kuhn-0          # 5 minutes on a core
    python benchmarks/self_play.py --game kuhn --opponents pool --out runs/kuhn-pool
    python benchmarks/self_play.py --game nim --iterations 150 --out runs/nim-0

The model is tiny-base after a supervised start as a beginner. A move is one token, so that the probability of a move is
a sum over the vocabulary, and what a best response wins is a sum over the game's tree. Exploitability is half of what
two best responses win, one in each seat: 0 for an equilibrium. The loss has a KL to the beginner, which falls. With
`--opponents pool`, an earlier self plays one seat in half of the episodes. OUT/exploitability.json has the curve.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from agent_envs.adapters.run import FailureBudget
from agent_envs.adapters.torch.loop import iterate
from agent_envs.adapters.torch.run import Run
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.files import write_text
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome, TextEnv

SEATS = ("first", "second")
DEALS = tuple(itertools.permutations("JQK", 2))


class Kuhn:
    """Kuhn poker: three cards, an ante of 1, one bet of 1 (Kuhn 1950; the first player's value is -1/18)."""

    moves = ("pass", "bet")
    starts = tuple((deal, "") for deal in DEALS)
    rules = "Kuhn poker. Say bet or pass."

    def beginner(self, seen: str) -> list[float]:
        """Bet the more often the better the card is."""
        bet = {"J": 0.4, "Q": 0.5, "K": 0.6}[seen.partition("the ")[2][0]]
        return [1 - bet, bet]

    def player(self, state: Any) -> int:
        return len(state[1]) % 2

    def seen(self, state: Any) -> str:
        deal, history = state
        said = ", ".join("bet" if move == "b" else "pass" for move in history) or "nothing"
        return f"You are {SEATS[self.player(state)]} with the {deal[self.player(state)]}. So far: {said}."

    def next(self, state: Any, move: str) -> Any:
        return state[0], state[1] + move[0]

    def first_wins(self, state: Any) -> float | None:
        (mine, other), history = state
        if history not in ("pp", "bp", "bb", "pbp", "pbb"):
            return None
        if history.endswith("bp"):
            return 1.0 if history == "bp" else -1.0
        stake = 2.0 if history.endswith("bb") else 1.0
        return stake if "JQK".index(mine) > "JQK".index(other) else -stake


class Nim:
    """One heap; take 1, 2 or 3; who takes the last one wins."""

    moves = ("1", "2", "3")
    starts = tuple((heap, 0) for heap in range(5, 11))
    rules = "Nim. Take 1, 2 or 3; who takes the last one wins."

    def beginner(self, seen: str) -> list[float]:
        """Take as many as come to mind."""
        return [1 / 3] * 3

    def player(self, state: Any) -> int:
        return state[1] % 2

    def seen(self, state: Any) -> str:
        return f"There are {state[0]}."

    def next(self, state: Any, move: str) -> Any:
        return max(state[0] - int(move), 0), state[1] + 1

    def first_wins(self, state: Any) -> float | None:
        return None if state[0] else (1.0 if state[1] % 2 else -1.0)


GAMES = {"kuhn": Kuhn(), "nim": Nim()}
Strategy = dict[str, np.ndarray]
"""What is seen -> the probability of each move."""


def states(game: Any) -> dict[str, list[Any]]:
    """Return the states in which a player moves, by what that player sees."""
    seen: dict[str, list[Any]] = {}
    todo = list(game.starts)
    while todo:
        state = todo.pop()
        if game.first_wins(state) is None:
            seen.setdefault(f"{game.player(state)} {game.seen(state)}", []).append(state)
            todo += [game.next(state, move) for move in game.moves]
    return seen


def best_response(game: Any, strategy: Strategy, seat: int) -> float:
    """Return what a best response wins on average as ``seat`` against a strategy."""
    sign = 1.0 if seat == 0 else -1.0
    reach: dict[Any, float] = {}

    def spread(state: Any, chance: float) -> None:
        reach[state] = reach.get(state, 0.0) + chance
        if game.first_wins(state) is None:
            of_move = np.ones(len(game.moves)) if game.player(state) == seat else strategy[game.seen(state)]
            for move, p in zip(game.moves, of_move, strict=True):
                spread(game.next(state, move), chance * p)

    for start in game.starts:
        spread(start, 1.0 / len(game.starts))
    chosen: dict[str, int] = {}

    def value(state: Any) -> float:
        won = game.first_wins(state)
        if won is not None:
            return sign * won
        after = [game.next(state, move) for move in game.moves]
        if game.player(state) != seat:
            return float(np.dot(strategy[game.seen(state)], [value(s) for s in after]))
        key = f"{seat} {game.seen(state)}"
        if key not in chosen:  # the move that is best on average over the states that look alike
            alike = [s for s in together[key] if s in reach]
            gains = [sum(reach[s] * value(game.next(s, move)) for s in alike) for move in game.moves]
            chosen[key] = int(np.argmax(gains))
        return value(after[chosen[key]])

    together = states(game)
    return sum(value(start) for start in game.starts) / len(game.starts)


def exploitability(game: Any, strategy: Strategy) -> float:
    """Return half of what two best responses win, one in each seat."""
    return (best_response(game, strategy, 0) + best_response(game, strategy, 1)) / 2


@dataclasses.dataclass(frozen=True)
class Start:
    """How a game begins."""

    task_id: str
    state: Any


class Starts(IndexedTasks):
    def __init__(self, game: Any, split: str) -> None:
        super().__init__("generated", split)
        self.game = game

    def __len__(self) -> int:
        return len(self.game.starts)

    def get(self, index: int) -> Start:
        return Start(f"start/{index}", self.game.starts[index])


class SelfPlayEnv(TextEnv):
    """Both seats of a game. `info["player"]` says whose turn it is; the reward is the mover's."""

    def __init__(self, *, game: str = "kuhn", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.game = GAMES[game]
        self.instructions = self.game.rules

    def open_tasks(self) -> Any:
        return Starts(self.game, self.split)

    def begin(self, task: Any) -> tuple[str, Any]:
        return self.game.seen(task.state), task.state

    def act(self, action: str) -> Outcome:
        mover = self.game.player(self.state)
        self.state = self.game.next(self.state, move_of(self.game, action))
        won = self.game.first_wins(self.state)
        if won is None:
            return Outcome(self.game.seen(self.state))
        reward = won if mover == 0 else -won
        return Outcome("", reward=reward, terminated=True, success=won > 0)

    def info(self, outcome: Outcome) -> dict[str, Any]:
        won, turn = self.game.first_wins(self.state), self.game.player(self.state)
        info = super().info(outcome) | {"player": SEATS[turn]}
        if won is not None:  # the other player's: the mover's is the step's reward
            other = SEATS[turn]
            info["rewards"] = {other: won if other == SEATS[0] else -won}
        return info


def move_of(game: Any, text: str) -> str:
    """Read a move; what is none is the first one."""
    word = text.strip().lower()
    return next((move for move in game.moves if word and move.startswith(word)), game.moves[0])


gym.register("SelfPlay/Game-v0", entry_point=SelfPlayEnv, max_episode_steps=20)


@dataclasses.dataclass
class Play:
    """What the agent knows of the run: the game, and the earlier selves that it meets."""

    game: Any = GAMES["kuhn"]
    pool: list[Strategy] = dataclasses.field(default_factory=list)
    rng: np.random.Generator = dataclasses.field(default_factory=np.random.default_rng)


PLAY = Play()


async def both_seats(env: Any, model: Any) -> None:
    """Play both seats, each as a role; with a pool, one of them is an earlier self in half of the episodes."""
    earlier, seat = None, ""
    if PLAY.pool and PLAY.rng.random() < 0.5:
        earlier, seat = PLAY.pool[PLAY.rng.integers(len(PLAY.pool))], str(PLAY.rng.choice(SEATS))
    while not env.over:
        player = env.info["player"]
        if earlier is None or player != seat:
            reply = await model.role(player).chat(prompt(PLAY.game, env.observation))
            await env.step(reply)
            continue
        move = str(PLAY.rng.choice(PLAY.game.moves, p=earlier[env.observation]))
        _, reward, over, *_ = await env.step(move)
        if over:  # the step's reward is the mover's, and went to the latest reply, which is the other player's
            model.role(next(s for s in SEATS if s != seat)).pay(-reward)


def prompt(game: Any, seen: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": game.rules}, {"role": "user", "content": seen}]


class Moves:
    """The probability of each move in every situation, from the model's probabilities of single tokens."""

    def __init__(self, game: Any, tokenizer: Any) -> None:
        self.seen = sorted({key.partition(" ")[2] for key in states(game)})
        asked = [
            tokenizer.apply_chat_template(prompt(game, seen), add_generation_prompt=True, tokenize=False)
            for seen in self.seen
        ]
        ids = [torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in asked]
        self.last = torch.tensor([len(each) - 1 for each in ids])
        self.ids = pad_sequence(ids, batch_first=True)  # padded on the right, where a causal model does not look
        texts = [tokenizer.decode([token], skip_special_tokens=True) for token in range(len(tokenizer))]
        self.of_token = torch.tensor([game.moves.index(move_of(game, text)) for text in texts])
        words = [text.strip().lower() for text in texts]
        self.words = torch.tensor([next(i for i, w in enumerate(words) if w and m.startswith(w)) for m in game.moves])

    def log_probs(self, model: Any) -> torch.Tensor:
        """Return the log-probability of each token, shape [situations, vocabulary]."""
        logits = model(self.ids).logits[torch.arange(len(self.ids)), self.last]
        return logits.float().log_softmax(-1)

    @torch.no_grad()
    def strategy(self, model: Any) -> Strategy:
        shares = self.log_probs(model).exp()[:, : len(self.of_token)]
        moves = torch.zeros(len(shares), int(self.of_token.max()) + 1).index_add(1, self.of_token, shares)
        return {seen: p / p.sum() for seen, p in zip(self.seen, moves.double().numpy(), strict=True)}

    def begin(self, model: Any, beginner: Callable[[str], list[float]], steps: int = 150) -> None:
        """Train the model to play as a beginner: what is seen -> the probability of each move."""
        target = torch.tensor([beginner(seen) for seen in self.seen])
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.0)
        for _ in range(steps):
            loss = -(target * self.log_probs(model)[:, self.words]).sum(-1).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def train(game_name: str, opponents: str, iterations: int, seed: int, out: str) -> list[dict[str, float]]:
    """Train, and return the exploitability after each iteration and the tokens sampled so far."""
    game = PLAY.game = GAMES[game_name]
    PLAY.rng = np.random.default_rng(seed)
    config = LoopConfig(
        env="SelfPlay/Game-v0", out=out, env_kwargs={"game": game_name}, steps=iterations, seed=seed,
        agent="self_play:both_seats", estimator="rloo", tasks=len(game.starts), group=32, eval_tasks=0, warmup=0,
        max_response_tokens=1, mini_batches=1, save_every=iterations, weighting="token",
        learning_rate=0.03, kl="loss", kl_coef=0.25, grad_clip=100.0,
    )  # fmt: skip
    run, failures = Run(config), FailureBudget(config.max_broken)
    model = run.models["model"]
    # Adam gives gradients of any size the same step, with which self-play circles around an equilibrium
    run.optimizers["model"] = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    moves = Moves(game, run.tokenizer)
    moves.begin(model, game.beginner)
    run.models["reference"].load_state_dict(model.state_dict())
    tokens, curve = 0, []
    for number in tqdm(range(iterations + 1)):
        if number:
            share = 1.0 - 0.8 * number / iterations
            run.optimizers["model"].param_groups[0]["lr"] = config.learning_rate * share
            run.config = dataclasses.replace(config, kl_coef=config.kl_coef * share)
            tokens += int(iterate(run, number, failures)["env/tokens/trained"])
        now = moves.strategy(model)
        if opponents == "pool" and number % 5 == 0:
            PLAY.pool.append(now)
        curve.append({"iteration": number, "tokens": tokens, "exploitability": exploitability(game, now)})
    write_text(Path(out, "exploitability.json"), json.dumps(curve))
    for seen, p in moves.strategy(model).items():
        print(f"{seen:50} {' '.join(f'{move} {x:.2f}' for move, x in zip(game.moves, p, strict=True))}")
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=GAMES, default="kuhn")
    parser.add_argument("--opponents", choices=("self", "pool"), default="self")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True, metavar="DIR")
    args = parser.parse_args()
    sys.modules["self_play"] = sys.modules["__main__"]  # the agent's name is found here
    curve = train(args.game, args.opponents, args.iterations, args.seed, args.out)
    print(f"exploitability {curve[0]['exploitability']:.3f} -> {curve[-1]['exploitability']:.3f}")
