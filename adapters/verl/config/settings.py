"""Settings that verl does not have: everything under ``agentr1`` in its configuration, with types and defaults.

Every field of ``EstimatorOptions`` is one too (``turn_gamma``, ...), except for those that verl has in ``algorithm``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from agent_envs.adapters.curriculum import Curriculum
from agent_envs.adapters.estimators import EstimatorOptions
from agent_envs.adapters.losses import WEIGHTINGS
from agent_envs.adapters.run import MAX_BROKEN
from agent_envs.adapters.teacher import Teacher
from agent_envs.agents.loading import load_agent
from agent_envs.checks import boolean, choice, integer, json_object, number, shown
from agent_envs.errors import ConfigError, check_release, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run sets under ``agentr1``.

    Raises:
        ConfigError: A value that does not fit.
    """

    layout: str | None = None
    """What the models compute: ``merged`` rows, ``steps``, or ``tree``; None: see ``choose_layout``."""
    mode: str = "sync"
    """``sync``, or the next batches are played while one is trained: on the same devices with ``colocate``, on others
    with ``separate``."""
    lookahead: int | None = None
    """Batches under way besides the one that is trained next; None for 0, or 1 if not ``sync``."""
    weighting: str = "trajectory"
    """What a mini-batch's loss is a mean over: ``trajectory``, ``row`` or ``token``."""
    mini_batches_of_rows: bool = False
    """Whether ``ppo_mini_batch_size`` times ``rollout.n`` counts steps, as in verl."""
    twin_final: str | None = None
    """Whose last step has a second row, which alone has the reward: ``won`` episodes, or all that ``ended`` by the
    commands in them, as Agent-R1 stores ALFWorld's; None: no episode's."""
    process_rewards: Mapping[str, float] | None = None
    """Weight of each of ``info["reward_components"]`` that is a process reward."""
    normalize_process_rewards: str | None = None
    """``prime`` or None."""
    process_reward_weight: float = 1.0
    """Weight of the process reward relative to the rest of the reward."""
    scale_rewards: str | None = None
    """``batch``, ``running`` or ``released``: divide rewards by the deviation of returns; None: do not."""
    agent: str | None = None
    """What plays the episodes with the model: ``module:function`` or ``compact(...)``; None for a call per step."""
    score: str | None = None
    """What judges its episodes, ``module:function``; None for nothing."""
    train_roles: Sequence[str] = ()
    """Roles of the agent that are trained; all by default."""
    teacher: str = ""
    """Who labels the states that the policy reaches, ``expert`` or ``expert:NAME``; "" for nobody. See `Teacher`."""
    teacher_weight: float = 1.0
    """Weight of the labels' cross-entropy beside the policy loss."""
    teacher_until: int = 0
    """Steps over which that weight falls to 0; 0 to keep it."""
    teacher_mode: str = "mixed"
    """``mixed`` with the policy loss, ``alone`` in its place, or ``silent``: only for groups without a signal."""
    branch: str = ""
    """``FIRST-LAST:COUNT``: so many of a group's episodes grow from a step of each other one, drawn from this range; ""
    for none. See `Branches`."""
    levels: str = ""
    """Values of an argument of the environment to train on, as JSON; "" for none. See `Curriculum`."""
    curriculum: str = "uniform"
    """How levels are chosen: ``uniform``, ``fixed`` or ``learnable``."""
    request_seeds: bool = True
    """Whether each request of generation has a seed, so that episodes repeat."""
    seed: int = 0
    """Of episodes."""
    max_broken: float = MAX_BROKEN
    """Share of episodes over three steps that may break; more stop the run."""
    max_episodes: int | None = None
    """Most episodes at once in an agent-loop worker; None for no limit."""
    env_workers: int | None = None
    """Worker processes of a server of environments on each node; None to play them in the agent loops."""
    step_timeout: float | None = None
    """Seconds that a step may take; None for no limit."""
    episode_timeout: float | None = None
    """Seconds that an episode may take; None for no limit."""
    stall_timeout: float | None = 3600.0
    """Seconds that a phase of a run may stand still before the run is stopped; None for any number."""
    episodes_dir: str | None = None
    """Folder of the files of episodes; None to keep none."""
    ratios_dir: str | None = None
    """Folder of the steps' log-ratios in each update (``agent_envs.adapters.losses.ratios``); None to keep none."""
    phase_file: str | None = None
    """File that says what the trainer is doing; None for none."""
    trust: bool = False
    """Whether dataset rows may name code and servers (docs/security.md)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``EstimatorOptions``."""

    def __post_init__(self) -> None:
        choice("agentr1.mode", self.mode, ("sync", "colocate", "separate"))
        choice("agentr1.layout", self.layout or "merged", ("merged", "steps", "tree"))
        choice("agentr1.weighting", self.weighting, WEIGHTINGS)
        choice("agentr1.twin_final", self.twin_final, (None, "won", "ended"))
        for name in ("agent", "branch", "levels", "mini_batches_of_rows", "twin_final"):
            if getattr(self, name) and self.ahead:
                raise ConfigError(f"agentr1.{name} needs agentr1.mode=sync, got {self.mode}")
        if self.agent is not None:
            load_agent(self.agent)
        elif self.train_roles:
            raise ConfigError("agentr1.train_roles are of those that an agent plays: add agentr1.agent")
        self.teaching.check_expert()
        for name in ("teacher", "branch"):
            if getattr(self, name) and (self.agent or self.twin_final or self.mini_batches_of_rows):
                raise ConfigError(
                    f"agentr1.{name} is for a loop of one call per step, whose steps are its rows: leave out "
                    "agentr1.agent, agentr1.twin_final and agentr1.mini_batches_of_rows"
                )
        if self.chosen is None and self.curriculum != "uniform":
            raise ConfigError(f"agentr1.curriculum={self.curriculum} chooses among levels: add agentr1.levels")
        for name in ("stall_timeout", "step_timeout", "episode_timeout"):
            if (value := getattr(self, name)) is not None:
                number(f"agentr1.{name}", value, above=0)
        for name in ("env_workers", "max_episodes"):
            if (value := getattr(self, name)) is not None:
                integer(f"agentr1.{name}", value, minimum=1)
        if self.env_workers is not None:
            check_release("aiohttp", "serve")
            check_release("websockets", "serve")
        rewards = {} if self.process_rewards is None else self.process_rewards
        if not isinstance(rewards, Mapping):
            raise ConfigError(
                f"agentr1.process_rewards must be {{component: weight}}, such as {{format: 0.5}}, got {shown(rewards)}"
            )
        for component, weight in rewards.items():
            number(f"agentr1.process_rewards.{component}", weight)
        if self.lookahead is not None and integer("agentr1.lookahead", self.lookahead, minimum=0) and not self.ahead:
            raise ConfigError(
                f"agentr1.lookahead={self.lookahead} needs agentr1.mode=colocate or separate: with sync nothing is "
                "played ahead"
            )

    @property
    def teaching(self) -> Teacher:
        """What the run is taught."""
        return Teacher(self.teacher, self.teacher_weight, self.teacher_until, self.teacher_mode)

    @property
    def chosen(self) -> Curriculum | None:
        """The levels and how they are chosen, if there are any."""
        return Curriculum(json_object("agentr1.levels", self.levels), self.curriculum) if self.levels else None

    @property
    def ahead(self) -> bool:
        """Whether the next batches are played while one is trained."""
        return self.mode != "sync"

    @property
    def batches_ahead(self) -> int:
        """How many batches are under way besides the one that is trained next."""
        return int(self.ahead) if self.lookahead is None else self.lookahead


_OF_VERL = ("gamma", "group_size", "lam", "norm_by_std")
_OPTIONS = {f.name: f.default for f in fields(EstimatorOptions) if f.name not in _OF_VERL}
_DEFAULTS = {f.name: f.default for f in fields(Settings) if f.name != "options"} | _OPTIONS


def read_settings(config: Any) -> Settings:
    """Return what verl's configuration has under ``agentr1``."""
    values = dict(config.get("agentr1") or {})
    for name, value in values.items():
        if name not in _DEFAULTS:
            raise ConfigError(f"unknown setting agentr1.{name}.{did_you_mean(name, _DEFAULTS)}")
        # a word would count as True where a boolean is expected
        if isinstance(_DEFAULTS[name], bool):
            boolean(f"agentr1.{name}", value)
        elif isinstance(_DEFAULTS[name], (int, float)) and value is not None:
            number(f"agentr1.{name}", value)
    options = {name: values.pop(name) for name in _OPTIONS if name in values}
    return Settings(**values, options=options)
