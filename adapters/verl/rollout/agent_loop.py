"""verl's agent loop over any environment: plays one episode and returns its steps as as few rows as possible.

A dataset row names the environment (``env_id``, ``env_kwargs``, ``wrappers``) and the task
(``extra_info.index``). The prompts come from the environment and the tokenizer's chat template through
``PromptBuilder``, so the tokens that are trained are those that were sampled.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
import traceback
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from agent_envs.adapters.batches import last_prompt
from agent_envs.adapters.branches import Branches, Tree
from agent_envs.adapters.estimators import get_estimator
from agent_envs.adapters.teacher import labels_in
from agent_envs.adapters.trained import calls_made
from agent_envs.adapters.verl.config.models import SEEDED
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.adapters.verl.rollout.env_pool import EnvPool, EnvServers
from agent_envs.adapters.verl.rollout.episode_rows import episode_record, episode_rows, filler_row, parts_of
from agent_envs.adapters.verl.rollout.resuming import row_versions
from agent_envs.adapters.verl.rollout.server_policy import ServerPolicy, image_tokens, picture_folder, row_inputs
from agent_envs.episodes.builder import EpisodeBuilder
from agent_envs.episodes.record import Episode, StopReason, episode_pictures
from agent_envs.rollout.one import arun_episode
from agent_envs.threads import run_in_thread
from agent_envs.wrapping.recorded import recorded_env

_WORDS_OF = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3"}
"""The kind of model of text that a vision-language model has inside."""

# One of each per process: verl makes an agent loop per episode.
_pool = EnvPool()


@functools.cache
def _places(most: int | None) -> contextlib.AbstractAsyncContextManager[Any]:
    """What an episode plays in, so that at most so many of this process do at once."""
    return contextlib.nullcontext() if most is None else asyncio.Semaphore(most)


class RowOutput(AgentLoopOutput):
    """verl's output of an agent loop, with the step that wrote each response token."""

    step_ids: list[int]
    """Index of the step within its episode, -1 for what the policy did not write, shape [response tokens]."""

    versions: list[int] | None = None
    """Version of the weights that sampled each token, -1 where it is not known; None if training is synchronous."""

    model_inputs: dict[str, Any] | None = None
    """What a vision-language model gets beside the tokens (``row_inputs``); None for a model of text."""

    def as_dict(self) -> dict[str, Any]:
        """Return what verl stores, with ``step_ids`` and ``versions`` as columns of their own.

        verl asks for ``model_inputs`` apart (``plugin``).
        """
        columns = {"step_ids": self.step_ids, **({} if self.versions is None else {"versions": self.versions})}
        stored = super().as_dict()
        stored.pop("model_inputs", None)
        return {**stored, **{k: torch.tensor(v, dtype=torch.int64) for k, v in columns.items()}}


class EnvAgentLoop(AgentLoopBase):
    """Plays the task that a dataset row names."""

    def __init__(self, *, hf_model_type: str | None = None, processor: Any = None, **parts: Any) -> None:
        """Take verl's parts; its builder of prompts is not used, and for pictures would need a processor."""
        if hf_model_type in _WORDS_OF:
            hf_model_type, processor = _WORDS_OF[hf_model_type], None
        super().__init__(hf_model_type=hf_model_type, processor=processor, **parts)
        self.settings = read_settings(self.config)
        self.estimator = get_estimator(str(self.config.algorithm.adv_estimator))

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """Play and return one output per row: merged steps, or one step each with ``agentr1.layout=steps``.

        With ``agentr1.branch`` a session plays a tree of episodes, each with rows of its own. If the estimator compares
        with a greedy episode, the session after the last of ``rollout.n`` plays it.
        ``kwargs`` are the row's columns, and verl's ``uid``, ``session_id`` and ``global_steps``. Whatever goes wrong,
        the result is a row: verl would wait for one.
        """
        try:
            return await self._run(sampling_params, kwargs)
        except Exception:  # noqa: BLE001  whatever a constructor raises; the traceback is kept
            return await self._run(sampling_params, kwargs, error=traceback.format_exc())

    async def _run(
        self, sampling_params: dict[str, Any], kwargs: Mapping[str, Any], error: str | None = None
    ) -> list[AgentLoopOutput]:
        """Play, or return the row of an episode that failed before its first step."""
        extra, rollout, settings = kwargs.get("extra_info") or {}, self.rollout_config, self.settings
        trains = extra.get("phase", "train") == "train"
        session, number = kwargs.get("session_id", 0), kwargs.get("prompt_number")
        # a prompt that is trained has a number, the same whenever it is played, and a validation happens at a step
        place = f"step {int(kwargs.get('global_steps', 0))}" if number is None else f"prompt {int(number)}"
        task = f"{settings.seed}/{extra.get('phase', 'train')}/{kwargs['env_id']}/{extra.get('index')}"
        uid = str(kwargs.get("uid", uuid4()))
        if greedy := trains and self.estimator.needs_baseline and session == rollout.n:
            sampling_params = {**sampling_params, "temperature": 0.0, "top_p": 1.0, "top_k": -1}
        policy = ServerPolicy(
            self.server_manager,
            self.tokenizer,
            sampling_params,
            prompt_length=rollout.prompt_length,
            response_length=rollout.response_length,
            max_model_len=rollout.get("max_model_len") or rollout.prompt_length + rollout.response_length,
            seed=f"{task}/{place}/{session}" if rollout.name in SEEDED and settings.request_seeds else None,
            template_kwargs=dict(self.apply_chat_template_kwargs or {}),
            untimed=settings.ahead,
            pictures=image_tokens(str(self.config.actor_rollout_ref.model.path), self.tokenizer),
            engine=rollout.name,
        )
        index, seed = extra.get("index"), extra.get("seed")
        if seed is None:  # what the environment draws is the same for the episodes that are compared
            seed = zlib.crc32((task if number is None else f"{task}/{place}").encode())
        options = None if index is None else {"index": int(index)}
        branches = Branches.read(settings.branch) if trains and settings.branch else None
        began = time.monotonic()
        async with _places(settings.max_episodes):
            started = time.monotonic()
            if error is None:
                taught = trains and settings.teaching.labels_at(int(kwargs.get("global_steps", 1)))
                drawn_by = [zlib.crc32(f"{task}/{place}/{session}".encode())]
                tree = await self._play(kwargs, policy, int(seed), options, branches, drawn_by, taught=taught)
            else:
                tree = Tree(0, [EpisodeBuilder(kwargs["env_id"], int(seed), options).end(StopReason.ERROR, error)])
        timing: dict[str, Any] = {"total": time.monotonic() - started, "queued": started - began}
        policy.note_env_time()
        timing |= {"generate_sequences": policy.generate_seconds, "tool_calls": policy.env_seconds}
        newest = max(int(kwargs.get("global_steps", 0)) - 1, 0)
        known = [version for step in policy.versions for version in step if version >= 0] or [newest]
        fields: dict[str, Any] = {"min_global_steps": min(known), "max_global_steps": max(known)}
        outputs: list[AgentLoopOutput] = []
        first = session * (1 if branches is None else branches.size)
        named = [replace(e, episode_id=f"{uid}_{first + i}", group_id=uid) for i, e in enumerate(tree.episodes)]
        tree, gamma = tree._replace(episodes=named), float(self.config.algorithm.get("gamma", 1.0))
        weighting, twin = None if branches is None else settings.weighting, settings.twin_final if trains else None
        parts = parts_of(tree, gamma, weighting=weighting, roles=settings.train_roles, twin=twin)
        filler = self.tokenizer.eos_token_id
        bootstraps = trains and self.estimator.needs_critic and settings.options.get("bootstrap_truncated", True)
        builder = policy.model.builder if bootstraps and policy.model is not None else None
        for number, (episode, of_episode) in enumerate(zip(named, parts, strict=True)):
            how: dict[str, Any] = {
                "filler_id": filler,
                "final_prompt_ids": () if builder is None else last_prompt(episode, builder, policy.context_length),
                "merge": settings.layout != "steps",
                "anchors": trains and self.estimator.needs_anchors,
            }
            made = (episode_rows(part, labels=self._labels(part, policy), **how, **own) for part, own in of_episode)
            rows = [filler_row("baseline", filler)] if greedy else [row for some in made for row in some]
            rows = rows or [filler_row("masked", filler)]
            # verl copies the last row's reward and reward_extra_info to all rows of a session
            # (v1/agent_loop_tq.py:174): a row's own are in its other fields
            line = episode.to_json()
            record = episode_record(episode, 0 if number else policy.cached_tokens)
            record |= {"episode": "" if trains else line} | (calls_made(episode) if settings.agent else {})
            record |= {"level": str(kwargs["level"])} if "level" in kwargs else {}
            for row in rows:
                tokens, last = row.tokens, row is rows[-1]
                output = RowOutput(
                    prompt_ids=tokens.prompt_ids,
                    response_ids=tokens.response_ids,
                    response_mask=tokens.response_mask,
                    response_logprobs=tokens.logprobs if sampling_params.get("logprobs") else None,
                    step_ids=tokens.step_ids,
                    versions=row_versions(tokens.step_ids, policy.versions) if settings.ahead else None,
                    reward_score=episode.reward,
                    num_turns=2 * len(episode.steps),
                    metrics=AgentLoopMetrics(generate_sequences=sum(policy.generate_seconds)),
                    extra_fields={
                        **fields,
                        **row.fields(episode.episode_id),
                        "timing": {} if number else timing,
                        "episode": line if trains and last else "",
                        "error": (episode.error or "") if last else "",
                        "record": record,
                        "reward_extra_info": record,
                    },
                )
                if policy.pictures is not None:
                    ids = [*tokens.prompt_ids, *tokens.response_ids]
                    output.model_inputs = await asyncio.to_thread(row_inputs, policy.pictures, ids, tokens.pictures)
                outputs.append(output)
            if policy.pictures is not None and settings.episodes_dir:
                folder = picture_folder(Path(settings.episodes_dir) / "episodes.jsonl")
                await asyncio.to_thread(folder.add, episode_pictures(episode))
        return outputs

    async def _play(
        self, row: Mapping[str, Any], policy: ServerPolicy, seed: int, options: Any, branches: Branches | None,
        drawn_by: Sequence[int], *, taught: bool,
    ) -> Tree:  # fmt: skip
        """Play the episode, or a tree of them, in an environment of the pool, which tells labels if it is `taught`."""
        env_id, settings = row["env_id"], self.settings
        servers = EnvServers(settings.env_workers, settings.step_timeout) if settings.env_workers else None
        parts = {name: json.loads(row.get(name) or "null") for name in ("env_kwargs", "wrappers")}
        name, arguments, wrappers = recorded_env({"env": env_id, **parts}, "a dataset row", trust=settings.trust)
        if taught:
            arguments, wrappers = settings.teaching.asked(arguments, wrappers)
        key, env = await _pool.acquire(name, arguments, wrappers, servers)
        if branches is None:
            episode = await arun_episode(
                env, policy, seed=seed, options=options, step_timeout=settings.step_timeout,
                episode_timeout=settings.episode_timeout, agent=settings.agent, score=settings.score,
            )  # fmt: skip
            tree = Tree(0, [episode])
        else:
            grown = run_in_thread(branches.grow, env, policy, seed=seed, options=options, drawn_by=drawn_by)
            tree = await asyncio.wrap_future(grown)
        if servers:  # the environment played is not its client
            tree = tree._replace(episodes=[replace(e, env_id=env_id.rpartition(":")[2]) for e in tree.episodes])
        ends = {episode.stop_reason for episode in tree.episodes}
        if not any(reason.broken for reason in ends):
            _pool.release(key, env)
            return tree
        if servers:  # the others may be of a server that is gone
            await asyncio.to_thread(_pool.close, key)
        if StopReason.ERROR in ends:  # after a time-out the abandoned thread closes it
            await asyncio.to_thread(env.close)
        return tree

    def _labels(self, episode: Episode, policy: ServerPolicy) -> dict[int, tuple[int, ...]]:
        """Return the tokens of the teacher's label at each step that has one."""
        if policy.model is None or not self.settings.teacher:
            return {}
        builder, before = policy.model.builder, [episode.reset_info, *(step.info for step in episode.steps)]
        states = [(episode, step, info) for step, info in zip(episode.steps, before, strict=False)]
        labels = labels_in(states, lambda episode: builder, policy.max_tokens, policy.context_length)
        return {i: ids for i, ids in enumerate(labels) if ids}
