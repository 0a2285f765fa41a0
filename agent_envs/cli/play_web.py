"""`agentr1 play --web`: a game as a page in the browser, with all that the terminal can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from agent_envs.checks import shown
from agent_envs.cli.play_game import PlayGame
from agent_envs.episodes.record import episode_pictures
from agent_envs.errors import AgentEnvsError, ConfigError
from agent_envs.pictures.png import data_url
from agent_envs.registration import env_name
from agent_envs.viewer.server import PageServer
from agent_envs.viewer.shape import Numbered, Origin, shown_episode

_MOST = 5000  # choices that are listed
_NOWHERE = Origin(Path("-"), 0, "", "", -1)


def play_server(game: PlayGame, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> PageServer:
    """Return the server of a game that has begun.

    ``GET /state`` returns the episode so far and what can be chosen; each of these does something and returns the same,
    with a ``message`` if it could not be done or has something to say:

    - ``POST /act {"action": TEXT}`` takes a text as the action, word for word;
    - ``POST /choose {"number": N, "values": {NAME: TEXT}}`` takes a choice, numbered from 0, with its arguments;
    - ``POST /undo {"count": N}``, ``/new``, ``/restart``, ``/task {"index": N}``;
    - ``POST /expert {"play": BOOLEAN}`` says the expert's next action, or takes it.
    """

    def state(message: str = "") -> dict[str, Any]:
        episode = game.episode()
        urls = {picture.digest: data_url(picture) for picture in set(episode_pictures(episode))}
        listed = game.choices[:_MOST]
        return {
            "episode": shown_episode(Numbered(episode.to_dict(), _NOWHERE, 1, lambda image: urls[image["sha256"]])),
            "choices": [{"label": each.label, "arguments": list(map(asdict, each.arguments))} for each in listed],
            "over": game.over,
            "played": game.played,
            "solved": game.solved,
            "message": message,
        }

    def after(move: Callable[[Mapping[str, Any]], str | None], given: dict[str, Any]) -> dict[str, Any]:
        try:
            return state(move(given) or "")
        except AgentEnvsError as e:
            return state(f"{e}")

    def choose(given: Mapping[str, Any]) -> None:
        number, values = given.get("number"), given.get("values", {})
        if type(number) is not int or not 0 <= number < len(game.choices):
            raise ConfigError(f"there are {len(game.choices)} choices, numbered from 0, got {shown(number)}")
        if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
            raise ConfigError(f"values must be an object of texts, got {shown(values)}")
        game.choose(number, values)

    def expert(given: Mapping[str, Any]) -> str:
        action = game.expert()
        if given.get("play"):
            game.act(action)
            return ""
        return f"The expert: {action}"

    def act(given: Mapping[str, Any]) -> None:
        if not isinstance(given.get("action"), str):
            raise ConfigError(f"an action must be text, got {shown(given.get('action'))}")
        game.act(given["action"])

    spec = game.env.spec
    meta = {"env": env_name(game.env), "limit": None if spec is None else spec.max_episode_steps}
    moves: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
        "act": act,
        "choose": choose,
        "expert": expert,
        "new": lambda given: game.new(),
        "restart": lambda given: game.restart(),
        "task": lambda given: game.task(given.get("index", -1)),
        "undo": lambda given: game.undo(given.get("count", 1)),
    }
    told = {name: partial(after, move) for name, move in moves.items()}
    return PageServer("play", meta, asked={"state": lambda _: state()}, told=told, host=host, port=port, token=token)
