"""Options of where episodes are played: in this process, or on the workers of a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from agent_envs.cli.arguments import chosen_policies, policy_settings
from agent_envs.errors import ConfigError
from agent_envs.policies.made import MadePolicy
from agent_envs.policies.policy import Policy
from agent_envs.rollout.ray_engine import RayEngine

__all__ = ["add_engine_arguments", "chosen_engine", "policies_there"]

_LOCAL = "local"


def add_engine_arguments(parser: argparse.ArgumentParser, *, policy: bool = False) -> None:
    """Add `--ray` and `--workers`, and `--gpus-per-worker` where a policy may need one."""
    add = parser.add_argument_group("cluster", "play on the workers of a Ray cluster (docs/scaling.md)").add_argument
    add(
        "--ray", nargs="?", const=_LOCAL, metavar="ADDRESS",
        help="the cluster, such as auto or 10.0.0.1:6379 (without an address: one on this machine, for this command)",
    )  # fmt: skip
    add("--workers", type=int, metavar="N", help="with --ray: number of workers (default: one per processor)")
    if policy:
        add("--gpus-per-worker", type=float, metavar="N", help="with --ray: GPUs of each worker's policy, such as 0.5")


def chosen_engine(arguments: argparse.Namespace) -> RayEngine | None:
    """Return the engine that the arguments name, None for this process.

    Raises:
        ConfigError: `--workers` or `--gpus-per-worker` stands without `--ray`.
    """
    gpus = vars(arguments).get("gpus_per_worker")
    if arguments.ray is None:
        for option, value in (("--workers", arguments.workers), ("--gpus-per-worker", gpus)):
            if value is not None:
                raise ConfigError(f"{option} is for the workers of --ray; give --ray too, or leave it out")
        return None
    address = None if arguments.ray == _LOCAL else arguments.ray
    return RayEngine(address, arguments.workers, 0.0 if gpus is None else gpus)


def policies_there(arguments: argparse.Namespace, samples: int, *, seed: int) -> Sequence[Policy]:
    """Return what `chosen_policies` returns, but made by each worker: models and clients are not sent to them."""
    policy_settings(arguments)  # what is wrong with the options is said here
    first = MadePolicy(partial(chosen_policies, arguments, samples, seed=seed), 0)
    return [first.with_number(sample) for sample in range(samples)]
