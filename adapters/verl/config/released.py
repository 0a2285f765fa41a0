"""The settings of released runs, beside a preset's own: what differs and why, and a run with exactly the released ones.

    release/NAME.yaml     a release: its runs, and their settings by task, algorithm and kind
    remaining.yaml        what a run with /published still does otherwise, and with which settings it would not

A preset has the settings of the newest release of its task, except those that it keeps (`kept`, with the reasons).
`PRESET/published` takes those too: the newest released run of that algorithm and task. `PRESET/published@RELEASE` is
that of a release.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agent_envs.adapters.verl.config.composed import Difference, flat
from agent_envs.checks import choice
from agent_envs.errors import ConfigError
from agent_envs.files import table
from agent_envs.tasks import is_verl_row, read_rows
from agent_envs.wrapping.recipes import RECIPES
from agent_envs.wrapping.recorded import RecordedEnv

EXACT = "/published"
"""The end of a preset's name that asks for the released settings; `@RELEASE` may follow it."""

RELEASES = ("capo", "agent-r1", "steppo", "paperscout", "agent-r1-2025")
"""The releases, the newest first."""

_SMALL = "-small"  # ends the name of a task's small form, whose runs are the task's, except what is said of it
_ROWS = ("hotpotqa_", "2wiki", "musique", "bytedance/pasa", "openai/gsm8k", "alfworld_", "webshop_", "scienceworld_")
"""How the `data_source` of released rows begins."""
_GIVEN = "set on the command line"
# What changes no result, whatever it is: places, names, logs, what is saved, memory and speed; and seeds, which no
# released run has.
_HARMLESS = re.compile("|".join(table(__package__, "harmless.json")))


@dataclass(frozen=True)
class Released:
    """A task's settings in a release, for one algorithm."""

    release: str
    task: str
    algo: str
    critic: bool
    """Whether the algorithm has a critic, so that its runs have those settings."""

    @classmethod
    def find(cls, task: str, algo: str, *, critic: bool, release: str | None = None, exact: bool = False) -> Released:
        """Return those of the newest release that has the task; with ``exact`` it must have the algorithm too."""
        if release is not None:
            choice("the release of a preset", release, RELEASES)
        runs = {name: _read(name)["runs"].get(task.removesuffix(_SMALL), []) for name in RELEASES}
        having = [name for name in RELEASES if algo in runs[name] and release in (None, name)]
        if not having and exact:
            known = "; ".join(f"{name}: {', '.join(algos)}" for name, algos in runs.items() if algos)
            which = f"{release} has no run" if release else "no release has a run"
            raise ConfigError(f"{which} of {algo} on {task}; released on {task}: {known or 'nothing'}")
        return cls(having[0] if having else next(name for name in RELEASES if runs[name]), task, algo, critic)

    def says(self, words: str) -> bool:
        """Return whether each of these words, `a|b` being either, is the task, the algorithm, the kind or `@RELEASE`.

        A task without a small form is `full` too.

        >>> run = Released("capo", "alfworld", "rloo", critic=False)
        >>> run.says("alfworld|webshop group"), run.says("alfworld critic"), run.says("every")
        (True, False, True)
        """
        own = {"every", f"@{self.release}", self.task, self.algo, "critic" if self.critic else "group"}
        own |= {self.task.removesuffix(_SMALL), "small" if self.task.endswith(_SMALL) else "full"}
        own.add("own" if self.recipe is None else "recipe")
        return all(own & set(word.split("|")) for word in words.split())

    @property
    def recipe(self) -> RecordedEnv | None:
        """The released form of the task; None where it is not known."""
        names = (name for name in _lineage(self.release) if (self.task, name) in RECIPES)
        return next((RECIPES[self.task, name] for name in names), None)

    def settings(self, model: str | None = None) -> dict[str, Any]:
        """Return the settings by name: verl's, ``env.ARGUMENT``, ``wrappers``, or a name of `run`."""
        out: dict[str, Any] = {}
        if self.recipe is not None:
            out = {f"env.{name}": value for name, value in self.recipe.env_kwargs.items()}
            out["wrappers"] = list(self.recipe.wrappers)
        for name in reversed([*_lineage(self.release)]):
            for words, settings in _read(name)["settings"].items():
                out |= settings if self.says(words) else {}
        if self.task == "hotpotqa" and model is not None:  # its prompts are fitted in tokens of the model
            fitted = f", max_tokens={out['data.max_prompt_length']}, tokenizer={model!r})"
            out["wrappers"] = [spec[:-1] + fitted for spec in out["wrappers"]]
        return out

    def spoken_of(self, value: Any) -> set[str]:
        """Return the settings of which `remaining` says whether they make up for what the run does otherwise."""
        open_ = _read("remaining", ".")["open"].values()
        keys = {key for each in open_ if self.says(each.get("where", "every")) for key in each.get("unless", ())}
        part = Path(str(value("data")))  # a file is a part of the data, of which training has one
        whole = value("rows") == "released" and (part.suffix != ".parquet" or part.stem == "train")
        return keys | ({"data", "env.goals"} if whole else set())

    def remaining(self, value: Any, *, needed: bool = False) -> dict[str, str]:
        """Return what the run does otherwise than the released one, by id; ``value`` returns a setting by name.

        With ``needed`` only what it cannot run without.
        """

        def had(words: Mapping[str, str]) -> bool:
            return all(word in str(value(key)) for key, some in words.items() for word in some.split())

        name = "needs" if needed else "unless"
        return {
            ids: entry["says"]
            for ids, entry in _read("remaining", ".")["open"].items()
            if self.says(entry.get("where", "every")) and (not had(entry[name]) if name in entry else not needed)
        }


@functools.cache
def _read(name: str, folder: str = "release") -> dict[str, Any]:
    return OmegaConf.to_container(OmegaConf.load(Path(__file__).parent / folder / f"{name}.yaml"))


def _lineage(release: str | None) -> Iterator[str]:
    """A release, and those that it is made of."""
    while release is not None:
        yield release
        release = _read(release).get("of")


def split_name(preset: str) -> tuple[str, bool, str | None]:
    """Return a preset's name without ``/published``, whether it was there, and the release behind it.

    >>> split_name("qwen3-4b/alfworld/grpo/published@steppo")
    ('qwen3-4b/alfworld/grpo', True, 'steppo')
    """
    name, at, release = preset.partition("@")
    if at and not name.endswith(EXACT):
        raise ConfigError(f"a release is named behind {EXACT}, as in MODEL/TASK/ALGORITHM{EXACT}@capo; got {preset!r}")
    return name.removesuffix(EXACT), name.endswith(EXACT), release if at else None


def read_value(config: Any, run: Any, key: str) -> Any:
    """Return a setting of a composed run, a ``RunConfig``, by its name in a release."""
    if key == "wrappers":
        return list(run.wrappers)
    if key == "rows":
        named = run.train_files or [str(run.env_kwargs.get("goals") or run.data)]
        return "released" if all(map(_has_released_rows, named)) else "own"
    if key.startswith("env."):
        return run.env_kwargs.get(key.removeprefix("env."))
    value = OmegaConf.select(config, key if "." in key else f"run.{key}")
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _has_released_rows(named: str) -> bool:
    """Return whether a file, or the first of a folder, has the release's rows."""
    data = Path(named).expanduser()
    files = [] if named in ("generated", "official") else [data, *sorted(data.glob("*.parquet"))]
    rows = next((read_rows(file) for file in files if file.is_file()), iter(()))
    row: Any = next(rows, (None, ""))[0]
    return is_verl_row(row) and str(row.get("data_source")).startswith(_ROWS)


def use_released(config: Any, released: Mapping[str, Any], *, exact: bool, given: Collection[str]) -> list[str]:
    """Set a release's settings in a composed preset, in place, except those that it keeps or that are ``given``.

    With ``exact`` it keeps none but what its name says, the model and the hardware. Returns the names of what it set.
    """
    fixed, names = {*config.named, *(() if exact else config.kept)}, []
    for key, value in released.items():
        if key in fixed or key in given or f"run.{key}" in given or (key.startswith("env.") and "env" in fixed):
            continue
        if key == "wrappers":
            config.run.env_wrappers = {config.run.env: value}
        elif key.startswith("env."):
            argument = {key.removeprefix("env."): value}
            OmegaConf.update(config.run.env_kwargs, config.run.env, argument, merge=True, force_add=True)
        else:
            names.append(key if "." in key else f"run.{key}")
            OmegaConf.update(config, names[-1], value, force_add=True)
    return names


def differences(
    config: Any, released: Mapping[str, Any], run: Any, plain: tuple[Any, Any] | None, but: Collection[str]
) -> tuple[Difference, ...]:
    """Return the settings of a composed run whose values are not the released ones.

    Among them is what the command line changes beside the preset alone, ``plain`` (its settings and its run), except
    keys in ``but``.
    """
    whys = {**config.kept, **config.named}
    found = [
        Difference(key, value, ours, whys.get(key, whys["env"] if key.startswith("env.") else _GIVEN))
        for key, value in released.items()
        if (ours := read_value(config, run, key)) != value
    ]
    now, before = _said(config, run), _said(*(plain or (config, run)))
    for key in dict.fromkeys([*now, *before]):
        if now.get(key) != before.get(key) and not (key in released or key in but or _HARMLESS.fullmatch(key)):
            found.append(Difference(key, before.get(key), now.get(key), _GIVEN))
    return tuple(found)


def _said(config: Any, run: Any) -> dict[str, Any]:
    """Return everything that a run says, by name: verl's settings as they are written, and its own."""
    said = {name.removeprefix("run."): value for name, value in flat(OmegaConf.to_container(config)) if value != {}}
    said |= {f"env.{name}": value for name, value in run.env_kwargs.items()}
    said |= {"split": run.split, "val_fraction": run.val_fraction}
    for name, splits in (("train_files", [run.split]), ("val_files", run.validation or ())):
        files = getattr(run, name)  # the release's own are no difference
        own = {*splits} == {Path(file).stem for file in files} and all(map(_has_released_rows, files))
        said[name] = () if own else files
    return said
