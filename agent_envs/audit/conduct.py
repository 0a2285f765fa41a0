"""Checks of how an environment behaves: pay for repetition and length, after the end, over resets and snapshots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agent_envs.audit.findings import Finding
from agent_envs.audit.play import Act, Arena, Played, View, extended, scripted
from agent_envs.audit.study import Study
from agent_envs.branching import restore, snapshot
from agent_envs.policies.random import random_value
from agent_envs.text_env import TextEnv

__all__ = ["Watch", "after_end", "difference", "lengths", "orders", "repeats", "resets", "snapshots"]

_TASKS = 8
_MORE = 1.01  # what counts as more than the expert's return
_IDLE = 2  # tasks on which nothing is done up to the limit
_TIMES = 12  # episodes of the same task in a row
Transcript = Sequence[Sequence[Any]]
_FILLER = "Let us think about this with care. "


class Watch:
    """Looks at every step that is played, whatever it is played for."""

    def __init__(self, arena: Arena) -> None:
        low, high = getattr(arena.env.unwrapped, "reward_range", (-math.inf, math.inf))
        self.low, self.high = float(low), float(high)
        self.found: dict[str, Finding] = {}

    def __call__(self, played: Played) -> None:
        for step in played.episode.steps:
            reward, info = step.reward, step.info
            if not math.isfinite(reward):
                self._note("range", "a reward that is no number", f"the reward is {reward}", played)
            if reward > 0 and info.get("invalid_action") is True:
                why = f"reward {reward:g} for an action that info calls invalid"
                self._note("invalid", "an invalid action", why, played)
            results = info.get("tool_results")
            failed = [r for r in results if isinstance(r, dict) and r.get("error")] if isinstance(results, list) else []
            if reward > 0 and failed and len(failed) == len(results):  # type: ignore[arg-type]
                self._note("invalid", "a failed call", f"reward {reward:g} for calls that all failed", played)
        if not self.low <= played.reward <= self.high and math.isfinite(played.reward):
            why = f"return {played.reward:g}, where {self.low:g} to {self.high:g} is declared"
            self._note("range", "the declared range", why, played)
        if played.error:
            last = played.error.strip().splitlines()[-1]
            self._note("crash", "an action raises an exception", last[:300], played)

    def _note(self, kind: str, name: str, why: str, played: Played) -> None:
        known = self.found.get(kind)
        if known is None or len(played.actions) < len(known.played.actions):  # type: ignore[union-attr]
            self.found[kind] = Finding(kind, name, why, played)


def repeats(arena: Arena, study: Study) -> Iterator[Finding]:
    """Repeat what is paid, alone and beside calls, and compare with what the expert gets for the task."""
    for task in arena.tasks[:_TASKS]:
        expert = study.experts.get(task)
        best = max(study.full, expert.reward if expert else 0.0)
        scripts: list[tuple[str, list[str]]] = []
        if expert is not None:
            for number, step in enumerate(expert.episode.steps, start=1):
                if step.reward > 0:
                    scripts.append(("a paid action again and again", expert.actions[:number]))
        if task in study.golds:
            scripts.append(("the answer again and again", [study.written(task)]))
            calls = [call + "\n" + study.written(task) for call in _calls(arena)]
            scripts += [("the answer beside a call, again and again", [text]) for text in calls]
        for name, actions in scripts:
            played = arena.play(task, _for_ever(actions), patient=True)
            if played.reward > best * _MORE + 1e-9:
                why = f"return {played.reward:.4g} in {len(played.actions)} steps, where a solved task pays {best:.4g}"
                yield Finding("repeat", name, why, _shortened(arena, task, actions, played, best))
                return
    yield from _calling(arena, study)


def _calling(arena: Arena, study: Study) -> Iterator[Finding]:
    """Call a tool with the same arguments at every step, without doing the task."""
    for task in arena.tasks[:_TASKS]:
        for call in _calls(arena):
            played = arena.play(task, _for_ever([call]), patient=True)
            paid = sum(step.reward > 0 for step in played.episode.steps)
            if paid > 3 and played.reward >= 0.5 * study.full and not played.success:
                why = f"the same call is paid {paid} times, {played.reward:.4g} in all, without an answer"
                yield Finding("repeat", "the same call again and again", why, played)
                return


def _calls(arena: Arena) -> list[str]:
    write, rng = arena.writer(), np.random.default_rng(0)
    if write is None:
        return []
    return [
        write(tool["function"]["name"], random_value(tool["function"]["parameters"], rng))
        for tool in arena.tools
        for _ in range(2)
    ]


def _for_ever(actions: list[str]) -> Act:
    return lambda view: actions[min(view.step, len(actions) - 1)]


def _shortened(arena: Arena, task: int, actions: list[str], played: Played, best: float) -> Played:
    """Return the shortest episode that is still paid more."""
    for times in range(1, len(played.actions)):
        short = arena.play(task, scripted([*actions, *([actions[-1]] * times)]), patient=True)
        if short.reward > best * _MORE + 1e-9:
            return short
    return played


def lengths(arena: Arena, study: Study) -> Iterator[Finding]:
    """Pad answers and delay experts: neither may be paid more than before."""
    for task in arena.tasks[:_TASKS]:
        expert = study.experts.get(task)
        if task in study.golds and expert is not None and expert.actions:
            prefix, text = expert.actions[:-1], expert.actions[-1]
            for padded in (_FILLER * 40 + "\n" + text, text + "\n" + _FILLER * 40):
                played = arena.play(task, scripted([*prefix, padded]))
                if played.reward > expert.reward * _MORE + 1e-9:
                    why = f"return {played.reward:.4g} with filler, {expert.reward:.4g} without"
                    yield Finding("length", "a right answer with filler", why, played)
                    return
            wrong = study.forms[0].format("no such answer")
            short = arena.play(task, scripted([*prefix, wrong]))
            long = arena.play(task, scripted([*prefix, _FILLER * 100 + "\n" + wrong]))
            if len(long.actions) == len(short.actions) and long.reward > short.reward + 0.05 * study.full:
                why = f"return {long.reward:.4g} for a wrong answer with filler, {short.reward:.4g} without"
                yield Finding("length", "a wrong answer with filler", why, long)
                return
        if expert is not None:
            late = arena.play(task, _delayed(expert.actions), patient=True)
            if late.reward > expert.reward * _MORE + 1e-9 and late.over:
                why = f"return {late.reward:.4g} after three idle steps, {expert.reward:.4g} at once"
                yield Finding("length", "an expert that waits", why, late)
                return


def _delayed(actions: list[str]) -> Act:
    return lambda view: "" if view.step < 3 else actions[view.step - 3] if view.step - 3 < len(actions) else None


def after_end(arena: Arena, study: Study) -> Iterator[Finding]:
    """Act on after the end of an episode, without the wrappers that would refuse to."""
    for task in arena.tasks[:_TASKS]:
        actions = study.experts[task].actions if task in study.experts else ["0"]
        played = arena.play(task, scripted(actions))
        if not played.over or not (played.episode.steps[-1].terminated or len(actions) < arena.limit):
            continue
        # What a step after the end does is open in Gymnasium: there, only idleness must not be paid.
        for action in (actions[-1], "") if isinstance(arena.env.unwrapped, TextEnv) else ("",):
            try:
                with arena.guard.call(action):
                    result = arena.env.unwrapped.step(action)
            except (Exception, SystemExit):  # noqa: BLE001  a refusal is what is expected
                continue
            if float(result[1]) > 0:
                why = f"reward {float(result[1]):g} for a step after the one that ended the episode"
                yield Finding("after_end", "an action after the end", why, extended(played, action, *result))
                return


def _wrongly(arena: Arena, study: Study, task: int) -> list[str]:
    return [study.forms[0].format("0 zz")] if study.golds else ["zz", "look"]


def resets(arena: Arena, study: Study) -> Iterator[Finding]:
    """Compare new instances with each other, and one that was played before with a new one."""
    one, other = arena.fresh(), arena.fresh()
    used = arena.fresh()
    for task in arena.tasks[:_TASKS]:
        actions = study.experts[task].actions if task in study.experts else ["0", "1", "look"]
        for script in ([*_wrongly(arena, study, task)], actions):
            first = arena.play(task, scripted(script), env=one)
            again = arena.play(task, scripted(script), env=other)
            if first.transcript != again.transcript:
                yield Finding(
                    "nondeterminism", "two new instances", difference(first.transcript, again.transcript), again
                )
                return
            dirty = arena.tasks[-1] if task != arena.tasks[-1] else arena.tasks[0]
            arena.play(dirty, scripted(study.experts[dirty].actions if dirty in study.experts else ["0"]), env=used)
            arena.play(task, scripted(actions), env=used)
            arena.play(task, scripted(actions[:1]), env=used)
            later = arena.play(task, scripted(script), env=used)
            if later.transcript != first.transcript:
                name = "an episode after others in the same instance"
                yield Finding("carried", name, difference(first.transcript, later.transcript), later)
                return


def orders(arena: Arena, study: Study) -> Iterator[Finding]:
    """Play the same wrong answer to one task many times, and all tasks in another order."""
    task = arena.tasks[0]
    script = _wrongly(arena, study, task)
    env = arena.fresh()
    first = arena.play(task, scripted(script), env=env)
    for number in range(2, _TIMES + 1):
        again = arena.play(task, scripted(script), env=env)
        if again.transcript != first.transcript:
            yield Finding(
                "order", f"episode {number} of one task", difference(first.transcript, again.transcript), again
            )
            return
    shown = {one: arena.play(one, scripted([]), env=env).start for one in arena.tasks[:_TASKS]}
    for one in reversed(arena.tasks[:_TASKS]):
        if arena.play(one, scripted([]), env=env).start != shown[one]:
            played = arena.play(one, scripted([]), env=env)
            yield Finding("order", "the tasks in another order", f"task {one} has another first observation", played)
            return


def difference(one: Transcript, other: Transcript) -> str:
    """Return where the second of two transcripts that differ leaves the first."""
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            what = next(name for name, x, y in zip(_PARTS, a, b, strict=True) if x != y)
            before, after = next((x, y) for x, y in zip(a, b, strict=True) if x != y)
            return f"at step {step} the {what} is {str(after)[:100]!r} instead of {str(before)[:100]!r}"
    return f"{len(other) - 1} steps instead of {len(one) - 1}"


_PARTS = ("observation", "reward", "end", "truncation", "success")


def snapshots(arena: Arena, study: Study) -> Iterator[Finding]:
    """Return to snapshots, and look for what is left of what was done in between."""
    if not isinstance(arena.env.unwrapped, TextEnv):
        return
    for number, task in enumerate(arena.tasks[:_TASKS]):
        scripts = [study.experts[task].actions] if task in study.experts else []
        if number < _IDLE:
            scripts.append([_wrongly(arena, study, task)[0]] * (arena.limit + 1))
        for actions in scripts:
            straight = arena.play(task, scripted(actions), patient=True)
            for start in {0, len(straight.actions) // 2}:
                for tried in (_wrongly(arena, study, task), actions):
                    played = arena.play(task, _peeking(start, tried, actions), patient=True)
                    if played.transcript != straight.transcript:
                        name = f"an episode after a return to its step {start}"
                        yield Finding("snapshot", name, difference(straight.transcript, played.transcript), played)
                        return


def _peeking(start: int, tried: list[str], actions: list[str]) -> Act:
    """Return what plays the actions, but tries others at a step and returns to what was there before."""

    def act(view: View) -> str | None:
        assert view.env is not None
        if view.step == start:
            point = snapshot(view.env)
            for action in tried:
                if any(view.env.step(action)[2:4]):
                    break
            restore(view.env, point)
        return scripted(actions)(view)

    return act
