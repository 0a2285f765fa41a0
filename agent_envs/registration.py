"""The ids of this package's environments, how one is made from any id, and what it has behind its wrappers.

Entry points are strings that Gymnasium resolves, so that importing this module loads no environment.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agent_envs._version import __version__
from agent_envs.checks import naming_arguments
from agent_envs.errors import AgentEnvsError, ConfigError, did_you_mean, first_line, own_code
from agent_envs.messages import ToolSpec

_Specs = dict[str, tuple[str, int]]
"""By name, the module and class within `agent_envs.envs`, and the most steps of an episode."""

_TEXT: _Specs = {
    "ALFWorld": ("alfworld.env:ALFWorldEnv", 50),
    "GSM8K": ("gsm8k.env:GSM8KEnv", 2),
    "GSM8KCode": ("gsm8k.code:GSM8KCodeEnv", 10),
    "GSM8KTool": ("gsm8k.env:GSM8KToolEnv", 10),
    "HelpDesk": ("helpdesk.env:HelpDeskEnv", 120),
    "HotpotQA": ("qa.env:HotpotQAEnv", 10),
    "MathCode": ("mathcode.env:MathCodeEnv", 10),
    "MuSiQue": ("qa.env:MuSiQueEnv", 10),
    "PaperSearch": ("papersearch.env:PaperSearchEnv", 5),
    "TableQA": ("tableqa.env:TableQAEnv", 10),
    "TwoWikiMultihopQA": ("qa.env:TwoWikiMultihopQAEnv", 10),
    "WebShop": ("webshop.env:WebShopEnv", 15),
}
_PICTURED: _Specs = {"PictureSearch": ("picturesearch.env:PictureSearchEnv", 24)}
# Environments of other packages, which extras install, or of a checkout; ENV_IDS are those that play as installed.
_FOREIGN: _Specs = {
    "Gem": ("gem:GemEnv", 300),
    "MCP": ("mcp:MCPEnv", 20),
    "OpenEnv": ("openenv:OpenEnvEnv", 100),
    "RLVE": ("rlve:RLVEEnv", 2),
    "ReasoningGym": ("reasoning_gym:ReasoningGymEnv", 2),
    "ScienceWorld": ("scienceworld:ScienceWorldEnv", 100),
    "SkyRLGym": ("skyrl_gym:SkyRLGymEnv", 50),
    "TauBench": ("helpdesk.released:TauBenchEnv", 30),
    "TextArena": ("textarena:TextArenaEnv", 300),
    "TextWorld": ("textworld:TextWorldEnv", 100),
    "Verifiers": ("verifiers:VerifiersEnv", 100),
}


def _ids(specs: _Specs) -> tuple[str, ...]:
    return tuple(sorted(f"AgentR1/{name}-v0" for name in specs))


ENV_IDS = _ids(_TEXT)
"""The id of every task whose observations are text."""
PICTURE_IDS = _ids(_PICTURED)
"""The ids of this package's tasks whose observations have pictures."""
FOREIGN_IDS = _ids(_FOREIGN)
"""The ids of other packages' environments, each of which needs an extra."""


def register_envs() -> None:
    """Register every id with Gymnasium. `import agent_envs` does it; calling it again changes nothing."""
    tasks = _TEXT | _PICTURED | _FOREIGN
    makers: dict[str, tuple[str, int | None]] = {n: (f"agent_envs.envs.{m}", most) for n, (m, most) in tasks.items()}
    makers["Remote"] = ("agent_envs.serving.remote_env:RemoteEnv", None)  # no task of its own: it needs arguments
    for name, (maker, steps) in makers.items():
        if (env_id := f"AgentR1/{name}-v0") not in gym.registry:
            # a TextEnv checks its own order, and the tests its types: two layers fewer at each step
            gym.register(
                env_id,
                maker,
                max_episode_steps=steps,
                order_enforce=False,
                disable_env_checker=True,
                vector_entry_point=f"agent_envs.vector.make:{env_id}",
            )


def make_env(env_id: str | EnvSpec, /, **kwargs: Any) -> gym.Env[Any, Any]:
    """Call `gymnasium.make`; what goes wrong is one sentence.

    Args:
        env_id: What `gymnasium.make` takes: "Id", "module:Id" or a spec.
        **kwargs: Arguments of the environment, and of `gymnasium.make`.

    Raises:
        ConfigError: There is no such environment, or it cannot be made with these arguments.
        AgentEnvsError: What the environment itself raises, such as DataError.

    >>> make_env("AgentR1/gsm8k-v0")
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: unknown environment 'AgentR1/gsm8k-v0'. Did you mean 'AgentR1/GSM8K-v0'?
    """
    name = env_id if isinstance(env_id, str) else env_id.id
    try:
        env_maker_of(env_id)  # Gymnasium would make the newest version for an id without one, under a name that is none
        return gym.make(env_id, **kwargs)
    except AgentEnvsError:
        raise
    except Exception as e:
        why = first_line((isinstance(e, ImportError) and e.__cause__) or e)  # Gymnasium says more, and not what to do
        if where := own_code(traceback.format_exc()):
            raise ConfigError(f"{name} cannot be made: {type(e).__name__}: {why} ({where})") from e
        if isinstance(e, TypeError):
            with suppress(TypeError), naming_arguments(name, env_maker_of(env_id), kwargs):
                raise
            raise ConfigError(f"{name} does not take these arguments: {why}") from e
        if isinstance(e, ImportError):
            if why == f"No module named {re.split('[.:]', name)[0]!r}":
                why += "; run this in the folder that has it, or install it: pip install -e FOLDER"
            raise ConfigError(f"unknown environment {name!r}: {why}") from e
        if not isinstance(e, (gym.error.Error, ValueError, AttributeError)):
            raise
        if not isinstance(e, gym.error.Error) or name.rpartition(":")[2] in gym.registry:
            raise ConfigError(f"{name} cannot be made: {why}") from e
        raise ConfigError(f"unknown environment {name!r}{_not_registered(name) or f'.{_similar_id(name)}'}") from e


def env_maker_of(env_id: str | EnvSpec) -> Callable[..., Any]:
    """Return the class or function that makes an environment; a module in its id is imported.

    Raises:
        gymnasium.error.Error: There is no such environment.
        ImportError, AttributeError: Its module or class is not there.

    >>> env_maker_of("AgentR1/GSM8K-v0").__name__
    'GSM8KEnv'
    """
    if isinstance(env_id, str):
        module, _, name = env_id.rpartition(":")
        if module:
            importlib.import_module(module)
        env_id = gym.spec(name)
    maker = env_id.entry_point
    if maker is None:
        raise gym.error.Error(f"{env_id.id} has no entry point")
    return load_env_creator(maker) if isinstance(maker, str) else maker


def _not_registered(env_id: str) -> str:
    """Return why a module that was found registers no such id, as the end of an error message; "" without a module."""
    module, separator, bare = env_id.partition(":")
    loaded = sys.modules.get(module)
    if not separator or loaded is None:
        return ""
    if getattr(loaded, "__file__", None) is None:  # Python takes any folder for a package without code
        return f": {module!r} is only a folder here; install the package in it: pip install -e {module}"
    known = [env_id for env_id, spec in gym.registry.items() if f"{_module(spec)}.".startswith(f"{module}.")]
    names = did_you_mean(bare, known) if known else " It registers none."
    return f": the module {module!r} does not register {bare!r}.{names}"


def _similar_id(env_id: str) -> str:
    """Return the end of an error message: a registered id that is nearly the same, or all ids of this package."""

    def bare(name: str) -> str:
        return name.rpartition("/")[2].partition("-v")[0].lower()

    similar = [known for known in (*ENV_IDS, *gym.registry) if bare(known) == bare(env_id)]
    similar += difflib.get_close_matches(env_id, gym.registry, n=1, cutoff=0.8)
    return f" Did you mean {similar[0]!r}?" if similar else did_you_mean(env_id, ENV_IDS)


def _module(spec: EnvSpec) -> str:
    """Return the name of the module that an environment is made by."""
    maker = spec.entry_point
    return maker.__module__ if callable(maker) else str(maker).partition(":")[0]


def layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Yield the wrappers of an environment from the outermost in, then the environment itself.

    >>> [type(layer).__name__ for layer in layers(gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 5))][::2]
    ['TimeLimit', 'OrderEnforcing', 'CartPoleEnv']
    """
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env


def available_actions(env: gym.Env[Any, Any]) -> list[str] | None:
    """Return `TextEnv.available_actions` of an environment; None if it does not have this hook.

    A wrapper that changes the form of actions has `format_command`, which writes each of them in that form.
    """
    return env.get_wrapper_attr("available_actions")() if env.has_wrapper_attr("available_actions") else None


def prompt_state(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return `TextEnv.prompt_state` of an environment; an empty dict if it does not have this hook."""
    return env.get_wrapper_attr("prompt_state")() if env.has_wrapper_attr("prompt_state") else {}


def offered_tools(env: gym.Env[Any, Any]) -> list[ToolSpec]:
    """Return the tools that a policy may call, even if an outer wrapper hides them and describes them in words."""
    for layer in layers(env):
        if layer.has_wrapper_attr("tools") and (tools := layer.get_wrapper_attr("tools")):
            return list(tools)
    return []


def env_name(env: gym.Env[Any, Any] | None) -> str:
    """Return the id an environment was made with, its class's name if there is none, or "" for None."""
    if env is None:
        return ""
    spec = env.unwrapped.spec
    return type(env.unwrapped).__name__ if spec is None else spec.id


def versions(env_id: str) -> dict[str, str]:
    """Return the versions that a result depends on: this package's, the environment's, and its package's if another.

    Args:
        env_id: The id of an environment that has been made, or "module:name" of what makes one.

    >>> versions("AgentR1/GSM8K-v0")["env"]
    'v0'
    """
    spec = gym.registry.get(env_id.rpartition(":")[2])
    releases = {"agent_envs": __version__}
    if spec is not None and spec.version is not None:
        releases["env"] = f"v{spec.version}"
    package = (env_id.partition(":")[0] if spec is None else _module(spec)).partition(".")[0]
    with suppress(metadata.PackageNotFoundError, ValueError):
        releases.setdefault(package, metadata.version(package))
    return releases
