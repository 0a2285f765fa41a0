"""What verl would train silently wrong, said before anything starts: one table of predicates and sentences.

What verl or a library refuses readably is left to it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from omegaconf import OmegaConf

from agent_envs.adapters.branches import check_branches
from agent_envs.adapters.estimators import Estimator
from agent_envs.adapters.losses import POLICY_LOSSES, policy_loss
from agent_envs.adapters.verl.config.engines import unequal_ranks
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.checks import integer, load_function, number
from agent_envs.errors import ConfigError


def find_row_loss(actor_rollout_ref: Any) -> Callable[..., Any] | None:
    """Return the run's policy loss if it was written for verl's rows, None if it is one of this package's kind.

    verl gives a loss padded rows and lets it average over them (``register_policy_loss``); a loss of this package adds
    up weighted tokens. ``actor_rollout_ref.actor.policy_loss.loss_mode`` names either: one of this package's by its
    name, what a module of ``model.external_lib`` registers with verl, or ``module:name``, which is for verl's rows if
    it has a parameter ``response_mask``. The modules named are imported.
    """
    name = str(actor_rollout_ref.actor.policy_loss.loss_mode)
    if ":" in name:
        function = load_function(name, "the policy loss")
        return function if "response_mask" in inspect.signature(function).parameters else None
    libraries = actor_rollout_ref.model.get("external_lib")
    if name in POLICY_LOSSES or not libraries:
        policy_loss(name)
        return None
    for module in [libraries] if isinstance(libraries, str) else libraries:
        try:
            importlib.import_module(module)
        except ImportError as e:
            raise ConfigError(f"actor_rollout_ref.model.external_lib {module} cannot be imported: {e}") from e
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    if name not in POLICY_LOSS_REGISTRY:
        policy_loss(name)
    return POLICY_LOSS_REGISTRY[name]


def row_loss_notice(name: str) -> str:
    """Return what a user of such a loss should know."""
    return (
        f"the policy loss {name} was written for verl's rows: it is called unchanged, on a padded row for each step; "
        "actor_rollout_ref.actor.loss_agg_mode says what it is a mean over, and agentr1.weighting is the critic's alone"
    )


_CORRECTION = "algorithm.rollout_correction"
_ROLLOUT = "actor_rollout_ref.rollout"
_TRUNCATED = ("agentr1_cpu", "vllm")  # those whose log-probabilities are of the distribution that was sampled from

# Counts in `run`, with the least that each may be. Where one of the others is null, other settings say it.
_COUNTS = {
    "epochs": 1, "min_updates_per_step": 1, "response_length": 1, "steps": 1, "tasks_per_step": 1, "train_tasks": 1,
    "updates_per_step": 1, "validation_tasks": 1, "vllm_cache": 1, "warm_start": 0,
}  # fmt: skip


def check_types(config: Any, names: Iterable[str], defaults: Callable[[], Any]) -> None:
    """Check that no setting of verl's of these ``names`` is a text where it is a number or a switch by default."""
    left = ("run.", "agentr1.", f"{_CORRECTION}.")  # ours have checks with bounds; verl's thresholds may be texts
    texts = [n for n in names if not n.startswith(left) and isinstance(OmegaConf.select(config, n), str)]
    usual = defaults() if texts else None
    for name in texts:
        if isinstance(default := OmegaConf.select(usual, name), (bool, int, float)):
            what = "True or False" if isinstance(default, bool) else "a number"
            raise ConfigError(f"{name} must be {what}, got {OmegaConf.select(config, name)!r}")


def check_numbers(run: Any) -> None:
    """Check the numbers of ``run``, which the command line can set like verl's settings."""
    for name, minimum in _COUNTS.items():
        if (value := run.get(name)) is not None or name in ("min_updates_per_step", "tasks_per_step", "warm_start"):
            integer(f"run.{name}", value, minimum=minimum)
    number("run.demo_noise", run.get("demo_noise"), minimum=0, maximum=1)
    if (rate := run.get("learning_rate")) is not None:
        number("run.learning_rate", rate, above=0)


def check_config(config: Any, estimator: Estimator) -> None:
    """Check the resolved configuration of a run that trains over steps; verl's own trainers are left to verl."""
    for name in ("train_batch_size", "max_prompt_length", "max_response_length"):
        integer(f"data.{name}", config.data[name], minimum=1)
    for name in ("max_num_seqs", "max_model_len"):
        integer(f"{_ROLLOUT}.{name}", config.actor_rollout_ref.rollout[name], minimum=1)
    integer("data.gen_batch_size", 1 if (size := config.data.get("gen_batch_size")) is None else size, minimum=1)
    for name, model in _updated(config, estimator).items():
        integer(f"{name}.ppo_mini_batch_size", model.ppo_mini_batch_size, minimum=1)
        number(f"{name}.optim.lr", model.optim.lr, minimum=0)
    if config.trainer.use_v1 and not str(config.trainer.v1.trainer_mode).startswith("agentr1_"):
        return
    settings = read_settings(config)
    estimator.check_group(config.actor_rollout_ref.rollout.n, f"{_ROLLOUT}.n")
    if settings.branch:
        names = ("score", "step_timeout", "episode_timeout", "process_rewards")
        without = {f"agentr1.{name}": getattr(settings, name) for name in names}
        without["algorithm.use_kl_in_reward"] = config.algorithm.use_kl_in_reward
        without["algorithm.gamma"] = estimator.name == "gigpo" and config.algorithm.gamma != 1
        group = config.actor_rollout_ref.rollout.n
        check_branches(settings.branch, group, estimator.name, without, setting=f"{_ROLLOUT}.n")
    for wrong, sentence in (*_of_training(config, estimator), *_of_playing_ahead(config), *_of_log_probs(config)):
        if wrong:
            raise ConfigError(sentence)


def _updated(config: Any, estimator: Estimator) -> dict[str, Any]:
    """What is updated, by name."""
    critic = {"critic": config.critic} if estimator.needs_critic or config.critic.enable else {}
    return {"actor_rollout_ref.actor": config.actor_rollout_ref.actor, **critic}


def needs_steps(config: Any) -> str | None:
    """Return why each step must be a row of its own; None if it need not."""
    if read_settings(config).mini_batches_of_rows:
        return "agentr1.mini_batches_of_rows counts steps, each of which must be a row"
    if find_row_loss(config.actor_rollout_ref) is not None:
        name = config.actor_rollout_ref.actor.policy_loss.loss_mode
        return f"the policy loss {name} was written for verl's rows, each of which is a step"
    return None


def tree_obstacle(config: Any) -> str | None:
    """Return what verl's engines need that is not computed on trees; None if nothing."""
    if config.model_engine != "dp":
        return f"agentr1.layout=tree needs model_engine=dp, got {config.model_engine}"
    for name in ("actor_rollout_ref.actor", "critic", "actor_rollout_ref.ref"):
        size = OmegaConf.select(config, f"{name}.ulysses_sequence_parallel_size") or 1
        if size != 1:
            return f"agentr1.layout=tree needs {name}.ulysses_sequence_parallel_size=1, got {size}"
    if config.actor_rollout_ref.model.get("use_fused_kernels", False):
        return "agentr1.layout=tree needs actor_rollout_ref.model.use_fused_kernels=False, got True"
    return None


def _of_training(config: Any, estimator: Estimator) -> Iterator[tuple[Any, str]]:
    """What updates and their rows do not do."""
    actor, critic, settings = config.actor_rollout_ref.actor, config.critic, read_settings(config)
    total, layout = config.data.train_batch_size, settings.layout
    bypassed = (config.algorithm.get("rollout_correction") or {}).get("bypass_mode", False)
    fused = config.actor_rollout_ref.model.use_fused_kernels
    yield not config.trainer.use_v1, "trainer.use_v1 must be True: steps are trained over verl's v1 trainers alone"
    for name, model in _updated(config, estimator).items():
        size = model.ppo_mini_batch_size
        yield (
            total % size and not settings.mini_batches_of_rows,
            f"{name}.ppo_mini_batch_size={size} does not divide data.train_batch_size={total}",
        )
    yield (
        estimator.needs_critic and critic.enable is not True,
        f"the estimator {estimator.name!r} needs a critic: critic.enable must be True, got {critic.enable}",
    )
    yield (
        actor.shuffle or (estimator.needs_critic and critic.shuffle),
        "actor_rollout_ref.actor.shuffle and critic.shuffle must be False: mini-batches hold whole groups",
    )
    yield (
        OmegaConf.select(config, "distillation.enabled"),
        "training over steps does not support distillation: distillation.enabled must be False, or "
        "trainer.v1.trainer_mode=sync for verl's own trainer",
    )
    ranks = unequal_ranks(config, needs_critic=estimator.needs_critic)
    yield ranks, str(ranks)
    for name, on in ((f"{_CORRECTION}.bypass_mode", bypassed), ("actor_rollout_ref.model.use_fused_kernels", fused)):
        yield (
            estimator.needs_score_norms and on,
            f"the estimator {estimator.name!r} needs the whole distribution of every token, which the actor computes "
            f"with the old log-probabilities: {name} must be False",
        )
    reason = needs_steps(config)
    yield reason and layout not in (None, "steps"), f"{reason}: agentr1.layout must be steps, got {layout}"
    obstacle = tree_obstacle(config) if layout == "tree" else None
    yield obstacle, str(obstacle)


def _of_playing_ahead(config: Any) -> Iterator[tuple[Any, str]]:
    """What groups that are replaced, and batches that are played ahead, do not go with."""
    get = partial(OmegaConf.select, config)
    settings, total = read_settings(config), config.data.train_batch_size
    ahead, separate = settings.ahead, settings.mode == "separate"
    filters, chunk = get("algorithm.filter_groups.enable"), get("data.gen_batch_size") or total
    yield (
        not (ahead or filters) and total % chunk,
        f"data.gen_batch_size={chunk} does not divide data.train_batch_size={total}",
    )
    yield ahead and filters, "algorithm.filter_groups replaces groups, which needs agentr1.mode=sync"
    for name in ("branch", "levels"):
        yield (
            getattr(settings, name) and filters,
            f"agentr1.{name} needs the episodes of all groups: algorithm.filter_groups.enable must be False",
        )
    yield (
        ahead and get("trainer.v1.sampler.custom_sampler.path"),
        "trainer.v1.sampler.custom_sampler is verl's own trainers'; batches here are in order",
    )
    yield (  # workers/engine_workers.py:764 would send the base model's weights alone
        separate and get("actor_rollout_ref.model.lora_rank") and not get("actor_rollout_ref.model.lora.merge"),
        "agentr1.mode=separate sends whole weights: a LoRA needs actor_rollout_ref.model.lora.merge=True",
    )
    yield (
        separate and get("trainer.v1.separate_async.hybrid_rollout.enable_switch"),
        "trainer.v1.separate_async.hybrid_rollout.enable_switch waits for whatever ends first; batches here are in "
        "order",
    )


def _of_log_probs(config: Any) -> Iterator[tuple[Any, str]]:
    """Where the sampler's log-probabilities do not exist, or are not of what they are taken for."""
    rollout, correction = config.actor_rollout_ref.rollout, config.algorithm.get("rollout_correction") or {}
    bypass, corrected = bool(correction.get("bypass_mode", False)), correction.get("rollout_is")
    used = [f"{name}={correction[name]}" for name in ("rollout_is", "rollout_rs") if correction.get(name)]
    used += ["bypass_mode=True"] if bypass else []
    if not rollout.calculate_log_probs:
        yield (
            used,
            f"{_ROLLOUT}.calculate_log_probs must be True: {_CORRECTION}.{''.join(used[:1])} uses the sampler's "
            "log-probabilities",
        )
        return
    limits = {"top_p": rollout.top_p < 1, "top_k": rollout.top_k > 0}
    truncated = "".join([f"{_ROLLOUT}.{name}={rollout[name]}" for name, on in limits.items() if on][:1])
    if rollout.name == "vllm":
        engine = (rollout.get("engine_kwargs") or {}).get("vllm") or {}
        mode = engine.get("logprobs_mode", rollout.get("logprobs_mode"))
        same = mode == "raw_logprobs" and rollout.temperature == 1 and not truncated
        yield (
            mode != "processed_logprobs" and not same,
            f"{_ROLLOUT}.logprobs_mode must be processed_logprobs: with the temperature, top_p and top_k of this run "
            f"vLLM's {mode} are not those of the distribution it samples from",
        )
    yield (
        truncated and rollout.name not in _TRUNCATED,
        f"{truncated}: it is not known of the rollout engine {rollout.name!r} whether its log-probabilities are of the "
        f"truncated distribution; train with top_p=1 and top_k=-1, or with {' or '.join(_TRUNCATED)}",
    )
    yield (
        truncated and (bypass or corrected is None),
        f"{truncated} samples from fewer tokens than the trainer computes probabilities over: add "
        f"{_CORRECTION}.bypass_mode=False {_CORRECTION}.rollout_is=token, which corrects for it, or leave it out",
    )
