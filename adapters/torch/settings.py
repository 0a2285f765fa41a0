"""The settings of the PyTorch loop, each of them an option of its command line."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs.adapters.branches import check_branches
from agent_envs.adapters.curriculum import Curriculum, env_kwargs_by_env, read_shares
from agent_envs.adapters.estimators import EstimatorOptions, get_estimator
from agent_envs.adapters.losses import KL_KINDS, WEIGHTINGS, policy_loss
from agent_envs.adapters.run import MAX_BROKEN
from agent_envs.adapters.teacher import Teacher
from agent_envs.agents.loading import load_agent
from agent_envs.checks import choice, integer, json_object, number
from agent_envs.errors import ConfigError
from agent_envs.wrapping.specs import takes_argument


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class LoopConfig:
    """The settings of a run; on the command line each is an option of the same name, with dashes.

    Raises:
        ConfigError: A value that is not allowed.
    """

    env: str | tuple[str, ...] = _option(
        "",
        "environment, such as AgentR1/GSM8KTool-v0, or module:ID of your own; several with their weights: A=0.7 B=0.3",
    )
    out: str = _option("", "folder of the run; run the same command again to resume")
    model: str = _option(
        "", "Hugging Face model or folder to start from (default: tiny-base; with pictures, tiny-vision)"
    )
    data: str = _option("generated", "generated, official or a path to released files")
    split: str = _option("train", "split to train on")
    eval_split: str = _option("test", "split to evaluate on")
    env_kwargs: dict[str, Any] = field(default_factory=dict, metadata={"help": "further arguments, as a JSON object"})
    wrappers: tuple[str, ...] = _option((), '"Name(key=value)"; may be repeated')
    agent: str = _option("", "what plays with the model: module:function, or compact(...) (default: a call per step)")
    score: str = _option("", "judges what the agent did: module:function")
    train_roles: tuple[str, ...] = _option((), "role of the agent that is trained; may be repeated (default: all)")
    steps: int = _option(40, "iterations of playing and updating")
    tasks: int = _option(16, "tasks of an iteration")
    group: int = _option(8, "episodes of a task, which are compared with each other")
    branch: str = _option(
        "", "FIRST-LAST:COUNT: so many of a group's episodes grow from a step of each other one, drawn from this range"
    )
    refill: int = _option(0, "most further rounds of tasks an iteration has, in place of groups with equal rewards")
    levels: dict[str, Any] = field(default_factory=dict, metadata={"help": "argument values to train on, as JSON"})
    curriculum: str = _option("uniform", "how levels are chosen: uniform, fixed (in order) or learnable")
    eval_tasks: int = _option(256, "held-out tasks played before and after; 0 for none")
    eval_every: int = _option(0, "iterations between two evaluations; 0 for one before and one after")
    estimator: str = _option("grpo", "advantage estimator: grpo, gae, gigpo, ..., or module:name of your own")
    teacher: str = _option(
        "",
        "who labels the states that the policy reaches: expert, or expert:NAME of several experts; or MODEL@URL: a "
        "model behind a server like vLLM's, which scores the policy's tokens",
    )
    teacher_weight: float = _option(1.0, "weight of the labels' cross-entropy, or of the model's advantages")
    teacher_until: int = _option(0, "iterations over which that weight falls to 0; 0 to keep it")
    teacher_mode: str = _option("mixed", "mixed with the policy loss, alone, or silent: only for groups without signal")
    gamma: float = _option(1.0, "discount per step; per token for estimators of tokens")
    lam: float = _option(1.0, "lambda of GAE")
    loss: str = _option("vanilla", "policy loss: vanilla, steppo, gspo, pspo or reinforce, or module:name of your own")
    layout: str = _option(
        "auto",
        "what the models compute: tree (what rows share once), merged (rows), steps, or auto: "
        "tree where it is known to cost nothing, on a CPU",
    )
    weighting: str = _option("trajectory", "what the loss is a mean over: trajectory, row (of a step) or token")
    kl: str = _option("none", "KL to the model at the start: none, loss or reward")
    kl_coef: float = _option(0.001, "its coefficient")
    kl_kind: str = _option("low_var_kl", "its estimate: k1, k2, k3, low_var_kl, ...")
    entropy_coef: float = _option(0.0, "bonus for the entropy of the policy")
    epochs: int = _option(1, "passes over the episodes of an iteration")
    mini_batches: int = _option(2, "updates of a pass, each on whole episodes")
    micro_tokens: int = _option(0, "most padded tokens of one forward and backward pass; 0 for what memory allows")
    learning_rate: float = _option(3e-4, "learning rate of AdamW; about 1e-6 for models of billions of parameters")
    critic_learning_rate: float = _option(1e-3, "learning rate of the critic, if the estimator needs one")
    freeze_vision: bool = _option(False, "do not train the vision tower of a model that takes pictures")
    warmup: int = _option(10, "iterations over which the learning rates rise")
    grad_clip: float = _option(1.0, "largest norm of a gradient")
    temperature: float = _option(1.0, "sampling temperature")
    max_response_tokens: int = _option(64, "most tokens of a response")
    max_tokens: int = _option(2048, "most tokens of a prompt with its response")
    max_broken: float = _option(MAX_BROKEN, "share of episodes over three iterations that may break before a run stops")
    step_timeout: float = _option(0.0, "seconds that a step may take, the model's part included; 0 for no limit")
    concurrency: int = _option(64, "episodes played at the same time")
    device: str = _option("", "cpu, cuda, ... (default: a GPU where there is one)")
    dtype: str = _option("float32", "precision: float32, or bfloat16 where the device computes it (weights: float32)")
    seed: int = _option(0, "seed of tasks, sampling and mini-batches")
    warm_start: int = _option(0, "supervised steps on demonstrations before the first iteration")
    demo_noise: float = _option(0.5, "share of demonstrated actions that are wrong on purpose")
    ratios_dir: str = _option("", "folder for the log-ratios of each update's steps, which `agentr1 ratios` reads")
    save_every: int = _option(20, "iterations between two checkpoints; the last one has one too")
    minutes: float = _option(0.0, "stop after the iteration in which so many minutes have passed; 0 for no limit")

    def __post_init__(self) -> None:
        choice("kl", self.kl, ("none", "loss", "reward"))
        choice("layout", self.layout, ("auto", "merged", "steps", "tree"))
        choice("kl_kind", self.kl_kind, KL_KINDS)
        choice("weighting", self.weighting, WEIGHTINGS)
        choice("dtype", self.dtype, ("float32", "bfloat16"))
        for name in ("tasks", "group", "epochs", "mini_batches", "max_response_tokens", "max_tokens",
                     "concurrency", "save_every"):  # fmt: skip
            integer(name, getattr(self, name), minimum=1)
        for name in ("temperature", "learning_rate", "critic_learning_rate", "grad_clip"):
            number(name, getattr(self, name), above=0)
        for name in ("steps", "eval_tasks", "eval_every", "warmup", "warm_start", "seed", "micro_tokens", "refill"):
            integer(name, getattr(self, name), minimum=0)
        for name in ("max_broken", "demo_noise"):
            number(name, getattr(self, name), minimum=0, maximum=1)
        for name in ("kl_coef", "entropy_coef", "minutes", "step_timeout"):
            number(name, getattr(self, name), minimum=0)
        if "split" in self.env_kwargs:
            raise ConfigError("name the splits with split and eval_split (--split, --eval-split), not in env_kwargs")
        if len(self.environments) > 1 and (self.levels or self.warm_start):
            raise ConfigError("levels and warm_start are of one environment: leave them out with several")
        if not (self.teacher and self.teacher_mode == "alone" and not self.teacher_until):
            get_estimator(self.estimator).check_group(self.group, "group")
        if self.levels:
            Curriculum(self.levels, self.curriculum)
        elif self.curriculum != "uniform":
            raise ConfigError(f"curriculum={self.curriculum} chooses among levels: add levels")
        if self.branch:
            without = {name: getattr(self, name) for name in ("agent", "score", "step_timeout")}
            without |= {"kl": self.kl == "reward", "gamma": self.estimator == "gigpo" and self.gamma != 1}
            check_branches(self.branch, self.group, self.estimator, without)
        if self.refill and not get_estimator(self.estimator).compares_groups:
            raise ConfigError(f"refill is for estimators that compare a group, such as grpo; got {self.estimator!r}")
        if self.refill and self.teaching.mode != "mixed":
            raise ConfigError(f"refill replaces groups that teacher_mode={self.teacher_mode} teaches: leave out one")
        if self.teaching.spec and self.agent and not self.teaching.server:
            raise ConfigError("a teacher labels the states of a loop of one call per step: leave out agent or teacher")
        if self.train_roles and not self.agent:
            raise ConfigError("train_roles are of those that an agent plays: add agent")
        policy_loss(self.loss)
        if self.agent:
            load_agent(self.agent)
        EstimatorOptions(gamma=self.gamma, lam=self.lam)

    @property
    def teaching(self) -> Teacher:
        """What the run is taught."""
        return Teacher(self.teacher, self.teacher_weight, self.teacher_until, self.teacher_mode)

    @property
    def environments(self) -> list[tuple[float, LoopConfig]]:
        """The weight of each environment, and these settings with it alone."""
        if isinstance(self.env, str):
            return [(1.0, self)]
        shares = read_shares(self.env)
        own = env_kwargs_by_env(self.env_kwargs, shares)
        return [(w, dataclasses.replace(self, env=env, env_kwargs=own.get(env, {}))) for env, w in shares.items()]

    def env_kwargs_of(self, split: str) -> dict[str, Any]:
        """Return the keyword arguments of the only environment for a split, which one without splits is not told."""
        assert isinstance(self.env, str)
        if not takes_argument(self.env, "split"):
            return dict(self.env_kwargs)
        return {"data": self.data, **self.env_kwargs, "split": split}

    def environment_of(self, split: str, *, taught: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the only environment's arguments and wrappers for a split; it tells the labels if ``taught``."""
        own = self.env_kwargs_of(split), self.wrappers
        return self.teaching.asked(*own) if taught else own


def read_command_line(argv: Sequence[str] | None) -> LoopConfig:
    """Return the settings that a command line gives; ``--env`` and ``--out`` are required.

    >>> read_command_line(["--env", "Toy-v0", "--out", "runs/x", "--kl", "loss"]).kl
    'loss'
    """
    parser = argparse.ArgumentParser(
        prog="python -m agent_envs.adapters.torch.loop",
        usage="%(prog)s --env ID --out DIR [options]",
        description="Train a model on an environment with plain PyTorch, on one device.",
        epilog="example: %(prog)s --env AgentR1/GSM8KTool-v0 --env-kwargs '{\"level\": 1}' "
        "--wrapper 'FormatReward(weight=0.1)' --out runs/loop",
    )
    metavars = {"out": "DIR", "model": "DIR", int: "N", float: "X", str: "NAME"}
    for option in dataclasses.fields(LoopConfig):
        name, text, default = f"--{option.name.replace('_', '-')}", option.metadata["help"], option.default
        if option.name == "env":
            parser.add_argument(name, action="append", metavar="ID", required=True, help=text)
        elif isinstance(default, tuple):
            flag, metavar = ("--wrapper", "SPEC") if option.name == "wrappers" else (name, "ROLE")
            parser.add_argument(flag, dest=option.name, action="append", default=[], metavar=metavar, help=text)
        elif option.name in ("env_kwargs", "levels"):
            parser.add_argument(name, default="{}", metavar="JSON", help=text)
        elif isinstance(default, bool):
            parser.add_argument(name, action="store_true", help=text)
        else:
            text += f" (default: {default})" if default != "" else ""
            metavar = metavars.get(option.name, metavars[type(default)])
            needed = option.name == "out"
            parser.add_argument(name, type=type(default), default=default, metavar=metavar, required=needed, help=text)
    values = vars(parser.parse_args(argv))
    values |= {name: json_object(f"--{name.replace('_', '-')}", values[name]) for name in ("env_kwargs", "levels")}
    values |= {name: tuple(values[name]) for name in ("wrappers", "train_roles")}
    shares = read_shares(values["env"])
    values["env"] = next(iter(shares)) if len(shares) == 1 else tuple(values["env"])
    return LoopConfig(**values)
