"""A run's configuration: the YAML groups of this folder, composed by Hydra with verl's own and the command line.

    run.yaml                              what every run sets; its defaults list is the order of precedence
    preset/                               cpu-tiny, cpu-llm, gpu-8 and published, on top of cpu.yaml or gpu.yaml
    released.py, release/                 the settings of released runs, and where a preset differs from them
    task/ algorithm/ model/ hardware/     --preset MODEL/TASK/ALGORITHM/HARDWARE takes one of each; --algo an algorithm

Every estimator is an algorithm of its own name; the files in ``algorithm/`` are pairs published under another one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent_envs import checks
from agent_envs.adapters.curriculum import env_kwargs_by_env, read_shares
from agent_envs.adapters.estimators import ESTIMATORS, get_estimator
from agent_envs.adapters.estimators.registry import VERL_NAMES
from agent_envs.adapters.verl.config.checks import check_config, check_numbers, check_types
from agent_envs.adapters.verl.config.composed import Composed, EnvShare, RunConfig, flat
from agent_envs.adapters.verl.config.engines import ENGINES, ORIGIN, derive
from agent_envs.adapters.verl.config.objective import read_objective
from agent_envs.adapters.verl.config.released import EXACT, Released, differences, read_value, split_name, use_released
from agent_envs.errors import ConfigError, DataError
from agent_envs.policies.named import model_path
from agent_envs.wrapping.order import Place, PlacedWrapper
from agent_envs.wrapping.specs import parse_wrapper, read_spec

# What `compose_run` is given where the command line says nothing.
_UNSAID: dict[str, Any] = dict.fromkeys(("env", "algo", "steps", "data", "env_kwargs", "warm_start", "demo_noise"))
_UNSAID |= {"split": "train", "wrappers": [], "val_fraction": 0.1, "overrides": [], "chosen": {}}

DEFAULT_HARDWARE = "h100-4"  # of a preset named with three parts; most of the published runs had four GPUs

_FOLDER = Path(__file__).parent
_PARTS = ("model", "task", "algorithm", "hardware")

# What the command itself decides; another value would leave a run that cannot be finished or resumed. verl's means over
# rows would be read by nobody: the losses have weights of their own.
_WEIGHTING = "+agentr1.weighting (row, token or trajectory)"
_FIXED = {
    "algorithm.adv_estimator": "--algo",
    "critic.loss_agg_mode": _WEIGHTING,
    "trainer.default_local_dir": "--out",
    "trainer.resume_mode": "--out (the same folder resumes a run, another one starts a new run)",
    "trainer.total_epochs": "--steps",
    "trainer.total_training_steps": "--steps",
}


def group_names(group: str) -> list[str]:
    """Return the names of the files in a group."""
    return sorted(path.stem for path in (_FOLDER / group).glob("*.yaml"))


def algorithms() -> list[str]:
    """Return the names that ``--algo`` takes besides ``module:name``."""
    return sorted({*ESTIMATORS, *group_names("algorithm")})


def compose_run(
    *, env: str | Sequence[str] | None, algo: str | None, preset: str, steps: int | None, data: str | None, split: str,
    env_kwargs: str | None, wrappers: Sequence[str], out: str | None, model: str | None, seed: int,
    warm_start: int | None, demo_noise: float | None, val_fraction: float, overrides: Sequence[str],
    chosen: Mapping[str, Any] = MappingProxyType({}),
) -> Composed:  # fmt: skip
    """Compose and check everything that the command line asks for. Nothing is written and no model is read.

    ``chosen`` has the options that are settings under ``agentr1``; the other arguments are the command's.
    """
    given = {**locals(), "chosen": {name: value for name, value in chosen.items() if value}}
    says_more = any(given[name] != value and given[name] not in ([], {}) for name, value in _UNSAID.items())
    options = dict[str, Any](env=env, algo=algo, model=model, steps=steps, data=data, out=out)
    options |= {"seed": seed or None, "warm_start": warm_start, "demo_noise": demo_noise, "wrappers": wrappers or None}
    for name, value, minimum in (("--steps", steps, 1), ("--warm-start", warm_start, 0), ("--seed", seed, 0)):
        if value is not None:
            checks.integer(name, value, minimum=minimum)
    for name, share in (("--demo-noise", demo_noise), ("--val-fraction", val_fraction)):
        if share is not None:
            checks.number(name, share, minimum=0, maximum=1)
    named, exact, release = split_name(preset)
    parts, task, preset_algo = _parts_of(named)
    algo = _agreed("--algo", algo and VERL_NAMES.get(algo, algo), preset_algo, preset) or "grpo"
    if ":" not in algo:
        checks.choice("--algo", algo, algorithms())
    if algo in group_names("algorithm"):
        parts.append(f"algorithm={algo}")
    shares = read_shares(env)
    given_kwargs = env_kwargs_by_env(checks.json_object("--env-kwargs", env_kwargs), shares)
    overrides = [*overrides, *(f"++agentr1.{name}={_quoted(value)}" for name, value in chosen.items() if value)]
    config = _compose([*parts, *map(_override, overrides)])
    overridden = {name for override in overrides for name in _names(override)}
    set_there = [*overridden, *(f"run.{name}" for name, value in options.items() if value is not None)]
    origins = dict.fromkeys(set_there, "command line")
    with _verl_errors():
        check_types(config, overridden, partial(_compose, parts))
    preset_run = config.run
    agreed = [_agreed("--env", name, preset_run.env, preset) for name in shares or [None]]
    envs = [name for name in agreed if name is not None]
    if not envs:
        raise ConfigError(f"preset {preset!r} works with any environment: add --env ID")
    env = envs[0]
    arguments = given_kwargs.get(env, given_kwargs.get("", {}))
    if (model := model or preset_run.model) is not None:
        model = str(Path(model).resolve()) if Path(model := model_path(model)).is_dir() else model
    elif not preset_run.makes_model:
        raise ConfigError(f"preset {preset!r} needs a model to train: add --model FOLDER")
    if len(envs) > 1 and warm_start:
        raise ConfigError("--warm-start teaches one environment; leave it out with several")
    data = data or preset_run.data
    _set_for_envs(preset_run, envs, overridden)
    preset_run.algo = algo
    preset_run.critic = get_estimator(config.algorithm.adv_estimator).needs_critic
    released, settings = None, dict[str, Any]()
    if task is not None:
        released = Released.find(task, algo, critic=preset_run.critic, release=release, exact=exact)
        settings = released.settings(model if exact else None)
        kept = {*overridden, *(f"env.{name}" for name in arguments)}
        taken = use_released(config, settings, exact=exact, given=kept)
        origins |= dict.fromkeys(taken, f"release {released.release}")
        preset_run.critic = get_estimator(config.algorithm.adv_estimator).needs_critic
    with _verl_errors():
        check_numbers(preset_run)
    _set_mini_batches(config, overridden)
    if (steps := steps or preset_run.steps) is None:
        if preset_run.epochs is None or preset_run.train_tasks is None:
            raise ConfigError(f"run.steps is null, and preset {preset!r} has no epochs to take it from: add --steps N")
        # the last tasks of a pass make no batch
        steps = max(1, preset_run.epochs * (preset_run.train_tasks // preset_run.tasks_per_step))
    files = _take_files(config, overridden)

    def share_of(name: str) -> EnvShare:
        on_any, own = preset_run.env_kwargs.get(name, {}), given_kwargs.get(name, arguments if name == env else {})
        made = data == "generated" and not files
        generated = preset_run.generated_env_kwargs.get(name, {}) if made else {}
        return EnvShare(
            name, shares.get(name, 1.0), {**on_any, **generated, **own}, _wrappers(preset_run, name, wrappers)
        )

    first = share_of(env)
    run = RunConfig(
        env=env, algo=algo, preset=preset, steps=steps, split=split, model=model, seed=seed, val_fraction=val_fraction,
        # Ray's processes start elsewhere: a path must not depend on the working directory.
        data=data if data in ("generated", "official") else str(Path(data).resolve()),
        env_kwargs=first.env_kwargs, wrappers=first.wrappers, mixed=tuple(map(share_of, envs)) if len(envs) > 1 else (),
        demo_env_kwargs={**preset_run.generated_env_kwargs.get(env, {}), **first.env_kwargs},
        out=Path(out or f"runs/{'+'.join(e.rpartition('/')[2] for e in envs)}-{algo.replace(':', '.')}-seed{seed}"),
        warm_start=preset_run.warm_start if warm_start is None else warm_start,
        demo_noise=preset_run.demo_noise if demo_noise is None else demo_noise,
        validation=None if preset_run.validation is None else tuple(preset_run.validation),
        overrides=tuple(overrides), **files,
    )  # fmt: skip
    folder = run.out.resolve()
    preset_run.update(env=env, model=model, steps=run.steps, seed=seed, out=str(folder), name=run.out.name)
    preset_run.update(data=run.data, warm_start=run.warm_start, demo_noise=run.demo_noise, wrappers=list(run.wrappers))
    preset_run.model_path = str(folder / "model") if run.model is None or run.warm_start else run.model
    origins |= dict.fromkeys(derive(config, overridden), ORIGIN)
    say = partial(read_value, config, run)
    alone = compose_run(**{**given, **_UNSAID}) if released and says_more else None
    plain, but = (alone.unresolved, alone.run) if alone else None, released.spoken_of(say) if released and exact else ()
    composed = Composed(
        run=run, unresolved=config, groups=tuple(parts), origins=origins,
        released=released.release if released else None,
        differences=differences(config, settings, run, plain, but) if released else (),
        remaining=released.remaining(say) if released and exact else None,
        needed=released.remaining(say, needed=True) if released and exact else {},
    )  # fmt: skip
    _check(composed, overridden)
    return composed


def _check(composed: Composed, overridden: Collection[str]) -> None:
    """Check what verl's settings, resolved, and the run's own ask of each other."""
    with _verl_errors():
        verl = composed.verl()
        objective = read_objective(verl)
        check_config(verl, objective.estimator)
    if "file" not in verl.trainer.logger:
        raise ConfigError(f"trainer.logger must contain 'file', got {verl.trainer.logger}: metrics.jsonl comes from it")
    if objective.settings.levels and (composed.run.mixed or composed.run.train_files):
        raise ConfigError("--levels is for tasks that the run draws from one --env: leave out others and train_files")
    if (mean := "actor_rollout_ref.actor.loss_agg_mode") in overridden and objective.row_loss is None:
        raise ConfigError(f"{mean} follows from {_WEIGHTING}; set that instead")


def _set_for_envs(preset_run: Any, envs: Sequence[str], overridden: Collection[str]) -> None:
    """Set what the preset has for these environments: that of the first, and the longest texts of all."""
    of_all = [preset_run.for_env.get(name, {}) for name in envs]
    own = dict(of_all[0])
    for name in ("prompt_length", "response_length"):
        if any(name in each for each in of_all):
            own[name] = max(each.get(name, preset_run[name]) for each in of_all)
    if len(envs) > 1:
        own.pop("warm_start", None)  # which teaches one environment
    preset_run.update({k: v for k, v in own.items() if f"run.{k}" not in overridden})


def _set_mini_batches(config: Any, overridden: Collection[str]) -> None:
    """Set how many updates a step has and the tasks of each, where the command line does not."""
    run = config.run
    if "run.updates_per_step" not in overridden:
        run.updates_per_step = max(run.updates_per_step or 0, run.min_updates_per_step)
    updates = run.updates_per_step or run.min_updates_per_step
    for part in (config.actor_rollout_ref.actor, config.critic):
        if part.ppo_mini_batch_size is None:
            part.ppo_mini_batch_size, rest = divmod(run.tasks_per_step, updates)
            if rest:
                tasks = f"run.tasks_per_step={run.tasks_per_step}"
                raise ConfigError(f"run.updates_per_step={updates} must divide {tasks}, which it shares out")


def _take_files(config: Any, overridden: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The files of rows that the command line names; verl reads the rows that are made of them."""
    taken = {}
    for name, written in (("train_files", "train"), ("val_files", "validation")):
        if f"data.{name}" in overridden:
            given = config.data.get(name)
            files = list(given) if OmegaConf.is_list(given) else [given]
            if not files or not all(isinstance(file, str) and file for file in files):
                example = f"data.{name}=[a.parquet,b.jsonl]"
                raise ConfigError(f"data.{name} must be a file of rows or a list of them, as in {example}; got {given}")
            taken[name] = tuple(str(Path(file).expanduser().resolve()) for file in files)
            if missing := [file for file in taken[name] if not Path(file).exists()]:
                raise DataError(f"data.{name}: there is no file {missing[0]}")
            config.data[name] = [f"${{run.out}}/data/{written}.parquet"]
    return taken


def _parts_of(preset: str) -> tuple[list[str], str | None, str | None]:
    """The group choices that a preset's name stands for, and the task and the algorithm it is for."""
    if "/" not in preset:
        names = [name for name in group_names("preset") if name != "published"]
        checks.choice("--preset", preset, [*names, f"MODEL/TASK/ALGORITHM[/HARDWARE][{EXACT}]"])
        over = ["cpu-vllm"] if preset == "cpu-llm" and importlib.util.find_spec("vllm") else []
        named = ["cpu-tiny", preset] if preset == "cpu-vllm" else [preset, *over]
        return [f"preset=[{','.join(named)}]"], None, None
    words = preset.split("/")
    if len(words) == len(_PARTS) - 1:
        words.append(DEFAULT_HARDWARE)
    if len(words) != len(_PARTS):
        raise ConfigError(
            f"a preset is written MODEL/TASK/ALGORITHM or {'/'.join(_PARTS).upper()}, and either may end in {EXACT}; "
            f"got {preset!r}"
        )
    model, task, algo, hardware = words
    models = model.split("+")
    for group, word in (*(("model", name) for name in models), ("task", task), ("hardware", hardware)):
        checks.choice(f"the {group} of a preset", word, group_names(group))
    algo = checks.choice("the algorithm of a preset", VERL_NAMES.get(algo, algo), algorithms())
    return ["preset=published", f"task={task}", f"model=[{','.join(models)}]", f"hardware={hardware}"], task, algo


def _wrappers(preset_run: Any, env: str, given: Sequence[str]) -> tuple[str, ...]:
    """The wrappers of a run, innermost first: the preset's for this environment, those given, the preset's for all.

    One that is given takes the place of the preset's of the same name, and of one that would do the same again.
    """
    names = {read_spec(spec)[1] for spec in given}
    places = {_place(spec) for spec in given} - {None}
    for_env = [spec for spec in preset_run.env_wrappers.get(env, []) if _place(spec) not in places]
    for_all = [spec for spec in preset_run.wrappers if read_spec(spec)[1] not in names]
    # Rewards go outside what decides which steps there are.
    return (*for_env, *given, *for_all)


def _place(spec: str) -> Place | None:
    """The place of one of this package's wrappers of which a stack has one; None for any other."""
    wrapper = parse_wrapper(spec)[0]
    if isinstance(wrapper, type) and issubclass(wrapper, PlacedWrapper) and not wrapper.repeatable:
        return wrapper.place
    return None


def _agreed(option: str, given: str | None, preset_value: str | None, preset: str) -> str | None:
    """An option's value or the preset's, which must not contradict each other."""
    if given is None or preset_value is None or given == preset_value:
        return preset_value if given is None else given
    raise ConfigError(f"preset {preset!r} is for {preset_value!r}, but {option} is {given!r}; leave one of them out")


def _override(override: str) -> str:
    """A setting from the command line in Hydra's form, refused if an option decides it."""
    key, equals, value = override.partition("=")
    name = key.strip("+~ ")
    if not equals or not name:
        raise ConfigError(f"expected a verl setting as key=value, got {override!r}")
    for each in _names(override):
        if each in _FIXED:
            raise ConfigError(f"{each} follows from {_FIXED[each]}; set that instead")
    if name == "model_engine":
        checks.choice(name, value, ENGINES)
    # A preset may hold the same setting already, where a plain "+" would be refused.
    return f"++{name}={value}" if name.startswith("agentr1.") and not key.startswith("~") else override


def _names(override: str) -> list[str]:
    """The settings that one from the command line sets: a mapping sets those that it names."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with _verl_errors():
        parsed = OverridesParser.create().parse_override(override)
    return [name for name, _ in flat({parsed.key_or_group: parsed.value()})]


def _quoted(value: str | list[str]) -> str:
    """A string or a list of them in Hydra's form."""
    if isinstance(value, list):
        return f"[{','.join(map(_quoted, value))}]"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _compose(overrides: Sequence[str]) -> Any:
    from hydra import compose

    with _hydra() as search:
        return compose("run", overrides=[search, *overrides])


def files_of(groups: Sequence[str]) -> list[str]:
    """Return the files of this folder that a choice of groups is composed of, in order: a later one wins."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    with _hydra() as search:
        loader = GlobalHydra.instance().config_loader()
        parts = loader.compute_defaults_list("run", [search, *groups], RunMode.RUN).defaults
    files = (f"{part.config_path}.yaml" for part in parts)
    return [file for file in files if (_FOLDER / file).exists()]


@contextmanager
def _hydra() -> Iterator[str]:
    """Hydra on this folder, and the override with which it finds verl's files."""
    from hydra import initialize_config_dir

    spec: Any = importlib.util.find_spec("verl")  # found without importing it, which takes seconds
    folder = _quoted(f"file://{Path(spec.origin).resolve().parent.as_posix()}")
    with _verl_errors(), initialize_config_dir(str(_FOLDER.resolve()), version_base=None):
        yield f"hydra.searchpath=[{folder[:-1]}/trainer/config']"


@contextmanager
def _verl_errors() -> Iterator[None]:
    from hydra.errors import HydraException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as e:
        raise ConfigError(f"verl does not accept these settings: {' '.join(str(e).splitlines()[:2])}") from e
