"""The environment that a command line names, by itself or by a run, whose run.json says what it was played in."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.adapters.curriculum import registered_id
from agent_envs.checks import integer, json_object
from agent_envs.cli.options import EnvId, Folder, Json, Spec, given_options, option
from agent_envs.datasets.paths import expanded
from agent_envs.episodes.record import Episode
from agent_envs.episodes.run_folder import read_settings
from agent_envs.errors import ConfigError
from agent_envs.wrapping.recipes import recipe
from agent_envs.wrapping.recorded import RecordedEnv, episode_env, recorded_env
from agent_envs.wrapping.specs import parse_wrapper

_INSIDE = ("checkpoints", "actor", "huggingface", "checkpoint", "model")  # folders of a checkpoint, in the run's


def of_episode(given: RecordedEnv, settings: Mapping[str, Any], episode: Episode, *, trust: bool) -> RecordedEnv:
    """Add what a run's settings (`run_settings`) and an episode say of the environment; what was given wins."""
    settings = _of_one(settings, episode.env_id)
    of = {"env_id": episode.env_id, "episode_id": episode.episode_id, "reset_info": episode.reset_info}
    recorded = episode_env(of, settings, env_id=given.env_id, env_kwargs=given.env_kwargs, trust=trust)
    return recorded._replace(wrappers=(*recorded.wrappers, *given.wrappers))


def _of_one(record: Mapping[str, Any], env_id: str) -> dict[str, Any]:
    """Return a run's record with the arguments of one of several environments, if it has them."""
    several, own = record.get("mixed"), registered_id(env_id)
    mixed = [each for each in several if isinstance(each, dict)] if isinstance(several, list) else []
    return {**record, **next((each for each in mixed if registered_id(str(each.get("env"))) == own), {})}


@dataclass(kw_only=True)
class EnvOptions:
    group = "environment"
    env: EnvId | None = option(None, "such as AgentR1/GSM8KTool-v0, or your own as module:ID")
    split: str | None = option(None, "split to take tasks from (default: the environment's own, train)")
    data: str | None = option(None, "generated, official or a path to released files (default: generated)")
    env_kwargs: Json | None = option(None, "further arguments of the environment, as a JSON object")
    wrapper: list[Spec] = option([], '"Name(key=value)"; may be repeated')
    recipe: str | None = option(None, "a released recipe in place of --env, such as alfworld", metavar="TASK[@RELEASE]")
    prompts: str | None = option(None, "your own wording for --recipe, a TOML or JSON file", metavar="FILE:NAME")

    def given_env(self) -> RecordedEnv:
        """Return what the command line says of the environment; the id is "" if it names none."""
        kwargs = json_object("--env-kwargs", self.env_kwargs)
        if twice := [name for name in ("split", "data") if name in kwargs]:
            raise ConfigError(f"--env-kwargs holds {twice[0]!r}; use --{twice[0]}")
        kwargs |= given_options(self, ["split", "data"])
        for spec in self.wrapper:
            parse_wrapper(spec)
        if self.recipe is None:
            if self.prompts is not None:
                raise ConfigError(
                    "--prompts is for --recipe; else use --wrapper \"RebuildPrompt(prompts='FILE:NAME')\""
                )
            return RecordedEnv(self.env or "", kwargs, tuple(self.wrapper))
        if self.env is not None:
            raise ConfigError("give either --env or --recipe, which names an environment")
        task, at, release = self.recipe.partition("@")
        released = recipe(task, release if at else None, prompts=self.prompts, **kwargs)
        return released._replace(wrappers=(*released.wrappers, *self.wrapper))


@dataclass(kw_only=True)
class RunOptions(EnvOptions):
    """An environment, or a run that was played in one."""

    group = "environment"
    run: Folder | None = option(
        None,
        "play what this run of `agentr1 train` or `eval` played: its environment, arguments and "
        "wrappers, where none are given here; --checkpoint does so too",
    )
    bare: bool = option(False, "ignore the arguments and wrappers in the run's run.json")
    trust: bool = option(False, "let a run name code, and run code that a model's files hold (docs/security.md)")

    def source(self) -> str | None:
        """Return the folder whose run.json names the environment."""
        return self.run

    def chosen_env(self) -> RecordedEnv:
        """Return the environment that was named, without making it.

        What is taken from a run, and where the command line differs, is said on standard error. Another environment
        than the run's has none of its arguments and wrappers.
        """
        choice, source = self.given_env(), self.source()
        if source and not (self.bare and choice.env_id):
            record, where = _record(Path(source))
            used = {name: value for name, value in record.items() if name == "env" or not self.bare}
            choice = self._of_run(choice, used, where)
        if not choice.env_id:
            raise ConfigError("give --env ID, such as AgentR1/GSM8KTool-v0, or --run DIR with the folder of a run")
        return choice

    def _of_run(self, given: RecordedEnv, record: Mapping[str, Any], where: str) -> RecordedEnv:
        env_id, kwargs, wrappers = given
        if "env" not in record:
            if self.run or not env_id:
                why = "it names no environment" if record else "there is no such file"
                raise ConfigError(f"{where}: {why}; name the --out of agentr1 train or eval, or an --env")
            return given
        record = _of_one(record, env_id)
        if env_id not in ("", record["env"]):
            _say(f"--env is {env_id}, in {where} {record['env']}: its arguments and wrappers are left out")
            return given
        choice = recorded_env(record, where, env_id=env_id, env_kwargs=kwargs, wrappers=wrappers, trust=self.trust)
        parts = [json.dumps(choice.env_kwargs)] if choice.env_kwargs else []
        _say(f"from {where}: " + ", ".join([choice.env_id, *parts, *choice.wrappers]))
        own = {**record, **(record.get("env_kwargs") or {})}
        for name, value in kwargs.items():
            if name in own and own[name] != value:
                _say(f"{name} is {value!r}, in the run {own[name]!r}")
        own_wrappers: Sequence[str] = own.get("wrappers") or ()
        if wrappers and [*wrappers] != [*own_wrappers]:
            _say(f"wrappers are {', '.join(wrappers)}, in the run {', '.join(own_wrappers) or 'none'}")
        return choice


def response_limit(checkpoint: str) -> int | None:
    """Return the most tokens of a response that a checkpoint was trained with; None if there is no run.json."""
    record, where = _record(Path(checkpoint))
    name = "response_length" if "response_length" in record else "max_response_tokens"
    return None if record.get(name) is None else integer(f"{name} in {where}", record[name], minimum=1)


def _record(path: Path) -> tuple[dict[str, Any], str]:
    """Return what a run says of its environment, and the file that says so."""
    folder = expanded(path).absolute()
    while (folder.name in _INSIDE or folder.name.startswith("global_step_")) and not (folder / "run.json").exists():
        folder = folder.parent
    settings = read_settings(folder / "run.json") or {}
    # Of a training run, the split is the one that it learned from; each command has its own.
    record = {name: value for name, value in settings.items() if name != "split"}
    if record.get("data") == "generated":
        del record["data"]  # as every environment has it
    return record, str(path if folder == path.absolute() else folder) + "/run.json"


def _say(text: str) -> None:
    sys.stderr.write(f"agentr1: {text}\n")
