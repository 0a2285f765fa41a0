"""Turns an episode into a trainer's rows: the tokens of its steps, merged if the prompts allow it, and step records.

The agent loop turns a row into verl's ``AgentLoopOutput``. There are five kinds:

============  =========================================================================================================
``step``      one or more steps (``agent_envs.adapters.merging``): only the tokens as sampled are trained
``value``     the state after the last step of a truncated episode, if it does not fit into a ``step`` row: only the
              critic reads it
``masked``    steps of a broken episode, or the one row of an episode without steps: not trained, but counted in
              metrics
``label``     the label of a state, if it is another response than the step's: not a step, but the teacher's loss
              reads it
``baseline``  a greedy episode, of which only the return is needed
============  =========================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from agent_envs.adapters.branches import Tree, cut
from agent_envs.adapters.merging import StepTokens, TokenRow, merge_steps
from agent_envs.adapters.trained import PLACE, trajectories
from agent_envs.episodes.record import Episode


@dataclass(frozen=True)
class Row:
    """One row of a trainer's batch."""

    kind: str
    """``step``, ``value``, ``label``, ``masked`` or ``baseline``."""
    tokens: TokenRow
    steps: tuple[dict[str, Any], ...]
    """Per step in order: ``index``, ``start`` and ``end`` of its tokens within the response, ``prompt_tokens`` before
    them, ``reward``, ``components`` (reward by name), ``terminated``, ``truncated``, ``anchor`` (the state it acted
    in); of an agent also ``time`` (environment steps before it); ``place``, its index in the whole episode, where
    that is another one."""
    value_at: int = -1
    """Response position before which the critic reads the state after a truncated episode's last step; -1 for none."""
    labels: tuple[tuple[int, int, int], ...] = ()
    """Of each label in it: the index of its step, and where its tokens begin and end within the response."""
    part: str = ""
    """Which of the episode's trajectories it is of: the role of a `Trajectory`, what stands before a slash."""
    peers: str = ""
    """It is compared with the trajectories of its group and role that have the same."""
    share: float = 1.0
    """How much each of its steps counts."""

    def fields(self, trajectory: str) -> dict[str, Any]:
        """Return the fields that go with the tokens; ``trajectory`` is the episode's name, "{uid}_{number}"."""
        own = {"kind": self.kind, "trajectory": trajectory, "value_at": self.value_at}
        own |= {"part": self.part, "peers": self.peers, "share": self.share}
        return {**own, "steps": list(self.steps), "labels": [list(label) for label in self.labels]}


PADDING: dict[str, Any] = {"kind": "padding", "trajectory": "", "steps": [], "value_at": -1, "labels": []}
"""The fields of a padding row."""


def episode_rows(
    episode: Episode,
    *,
    filler_id: int,
    final_prompt_ids: Sequence[int] = (),
    merge: bool = True,
    anchors: bool = False,
    labels: Mapping[int, Sequence[int]] = MappingProxyType({}),
    **own: Any,
) -> list[Row]:
    """Return the rows of an episode, at least one; with ``merge`` steps share a row if their prompts allow it.

    ``filler_id`` is the token of rows that have none of their own, and of the state after the last step, whose prompt
    is ``final_prompt_ids``: used only if a limit ended the episode there. ``anchors`` can be long.
    ``labels`` has the tokens of a teacher's labels, by the index of the step; ``own`` further fields of the rows.
    """
    broken = episode.stop_reason.broken
    # a scripted action has no tokens, so there is nothing to train
    played = {i: step for i, step in enumerate(episode.steps) if step.response_ids and step.prompt_ids}
    if not played:
        return [filler_row("masked", filler_id)]
    tokens = [
        StepTokens(
            i, step.prompt_ids or (), step.response_ids or (), step.response_logprobs or None, not broken,
            step.prompt_pictures,
        )
        for i, step in played.items()
    ]  # fmt: skip
    last = played[max(played)]
    cut = last.truncated and not last.terminated
    if final_prompt_ids and cut and not broken:
        tokens.append(StepTokens(len(episode.steps), final_prompt_ids, [filler_id], trained=False))
    records, told = {i: _record(episode, i, anchors) for i in played}, {} if broken else labels
    out = []
    for row in merge_steps(tokens, "merged" if merge else "steps"):
        steps = tuple(
            {**records[index], "start": start, "end": end} for index, start, end in row.spans if index in records
        )
        value_at = next((start for index, start, _ in row.spans if index not in records), -1)
        kind = "masked" if broken else "step" if steps else "value"
        done = [(i, a, b) for i, a, b in row.spans if i in told and tuple(told[i]) == played[i].response_ids]
        out.append(Row(kind, row, steps, value_at, tuple(done), **own))
    for i, step in played.items():
        if (ids := list(told.get(i, ()))) and tuple(ids) != step.response_ids:
            nobody, count = [-1] * len(ids), len(ids)
            tokens_of = TokenRow(list(step.prompt_ids or ()), ids, nobody, [0.0] * count, (), step.prompt_pictures)
            out.append(Row("label", tokens_of, (), labels=((i, 0, count),), **own))
    return out


def parts_of(
    tree: Tree, gamma: float, *, weighting: str | None = None, roles: Sequence[str] = (), twin: str | None = None
) -> list[list[tuple[Episode, dict[str, Any]]]]:
    """Return the trajectories of each episode of a tree, with the fields of their rows that say which they are.

    ``weighting`` is that of the loss if the tree branches; other trees are one episode, of the ``roles`` that are
    trained and with a ``twin_final``.
    """
    out: list[list[tuple[Episode, dict[str, Any]]]] = [[] for _ in tree.episodes]
    if weighting is None:
        episode = tree.episodes[0] if twin is None else with_twin(tree.episodes[0], twin)
        for each in trajectories(episode, gamma, roles):
            out[0].append((each.episode, {"part": each.name, "peers": episode.episode_id if each.within else ""}))
        return out
    state = tree.episodes[0].episode_id
    for part in cut(tree, weighting):
        inner = {"part": "/", "peers": state} if part.inner else {}
        out[part.member].append((part.episode, {**inner, "share": part.share}))
    return out


def with_twin(episode: Episode, whose: str) -> Episode:
    """Return an episode whose last step is there twice, first without its reward, if it is one of ``twin_final``."""
    *earlier, last = episode.steps or (None,)
    if last is None or episode.stop_reason.broken:
        return episode
    refused = any(result["error"] for step in episode.steps for result in step.info.get("tool_results", ()))
    if not last.terminated and (whose == "won" or not last.truncated or refused):
        return episode
    anchor = (earlier[-1].info if earlier else episode.reset_info).get("anchor", "")  # both answer the same state
    info = {**last.info, "reward_components": {}, "anchor": anchor}
    first = replace(last, reward=0.0, terminated=False, truncated=False, info=info)
    return replace(episode, steps=(*earlier, first, last))


def filler_row(kind: str, filler_id: int) -> Row:
    """Return a row that trains nothing."""
    return Row(kind, TokenRow([filler_id], [filler_id], [-1], [0.0], ()), ())


def _record(episode: Episode, index: int, anchors: bool) -> dict[str, Any]:
    step = episode.steps[index]
    before = episode.steps[index - 1].info if index else episode.reset_info
    return {
        "index": index,
        "prompt_tokens": len(step.prompt_ids or ()),
        "reward": float(step.reward),
        "components": {str(name): float(x) for name, x in (step.info.get("reward_components") or {}).items()},
        "terminated": step.terminated,
        "truncated": step.truncated,
        "anchor": str(before.get("anchor", "")) if anchors else "",
        **({} if step.time is None else {"time": step.time}),
        **({"place": step.info[PLACE]} if PLACE in step.info else {}),
    }


def episode_record(episode: Episode, cached_tokens: int = 0) -> dict[str, Any]:
    """Return what metrics need of an episode: small, flat, with the same keys for every episode.

    ``cached_tokens`` are those of its prompts that the server had computed before.
    """
    steps = len(episode.steps)
    return {
        "acc": float(episode.success),
        "success": float(episode.success),
        "return": episode.reward,
        "score": episode.score,
        "num_steps": float(steps),
        "calls": float(episode.calls),
        "invalid_actions": float(sum(bool(step.info.get("invalid_action", False)) for step in episode.steps)),
        "stop_reason": episode.stop_reason.value,
        "env": episode.env_id,
        "split": str(episode.reset_info.get("split", "")),
        "family": str(episode.reset_info.get("task_family", "")),
        "cached_tokens": float(cached_tokens),
        "prompt_tokens": float(sum(len(step.prompt_ids or ()) for step in episode.steps)),
        "response_tokens": float(sum(len(step.response_ids or ()) for step in episode.steps)),
    }
