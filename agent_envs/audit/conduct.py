"""Checks of how an environment behaves: pay for repetition and length, after the end, over resets and snapshots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agent_envs.audit.findings import Finding
from agent_envs.audit.play import Act, Arena, Played, View, scripted
from agent_envs.audit.study import Study
from agent_envs.branching import restore, snapshot
from agent_envs.errors import what_failed
from agent_envs.policies.scripted import random_value
from agent_envs.text_env import TextEnv

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
        self.findings: dict[str, Finding] = {}

    def __call__(self, played: Played) -> None:
        for step in played.steps:
            reward, info = step.reward, step.info
            if not math.isfinite(reward):
                self._note("range", "a reward that is no number", f"the reward is {reward}", played)
            results = [result for result in info.get("tool_results") or () if isinstance(result, dict)]
            if reward > 0 and results and all(result.get("error") for result in results):
                self._note("invalid", "a failed call", f"reward {reward:g} for calls that all failed", played)
            elif reward > 0 and info.get("invalid_action") is True and not results:
                why = f"reward {reward:g} for an action that info calls invalid"
                self._note("invalid", "an invalid action", why, played)
        if not self.low <= played.reward <= self.high and math.isfinite(played.reward):
            why = f"return {played.reward:g}, where {self.low:g} to {self.high:g} is declared"
            self._note("range", "the declared range", why, played)
        if played.error:
            self._note("crash", "an action raises an exception", what_failed(played.error)[:300], played)

    def _note(self, kind: str, name: str, why: str, played: Played) -> None:
        known = self.findings.get(kind)
        if known is None or len(played.actions) < len(known.played.actions):  # type: ignore[union-attr]
            self.findings[kind] = Finding(kind, name, why, played)


def repeats(arena: Arena, study: Study) -> Iterator[Finding]:
    """Repeat what is paid, alone and beside calls, and compare with what the expert gets; and repeat calls alone."""
    rng, functions = np.random.default_rng(0), [function for function in arena.functions for _ in range(2)]
    calls = [arena.call(function["name"], random_value(function["parameters"], rng)) for function in functions]
    for task in arena.tasks[:_TASKS]:
        scripts: list[tuple[str, list[str]]] = []
        best = study.full
        if (expert := study.experts.get(task)) is not None:
            best = max(best, expert.reward)
            paid = [number for number, step in enumerate(expert.steps, start=1) if step.reward > 0]
            scripts += [("a paid action again and again", expert.actions[:number]) for number in paid]
        if task in study.golds:
            answer = study.written(task)
            scripts.append(("the answer again and again", [answer]))
            scripts += [("the answer beside a call, again and again", [f"{call}\n{answer}"]) for call in calls]
        for name, actions in scripts:
            played = arena.play(task, scripted(actions + actions[-1:] * arena.limit), patient=True)
            if played.reward > best * _MORE + 1e-9:
                why = f"return {played.reward:.4g} in {len(played.actions)} steps, where a solved task pays {best:.4g}"
                longer = (actions + actions[-1:] * times for times in range(1, len(played.actions)))
                shorter = (arena.play(task, scripted(script), patient=True) for script in longer)
                shown = next((one for one in shorter if one.reward > best * _MORE + 1e-9), played)
                yield Finding("repeat", name, why, shown)
        for call in calls:
            played = arena.play(task, scripted([call] * (arena.limit + 1)), patient=True)
            times = sum(step.reward > 0 for step in played.steps)
            if times > 3 and played.reward >= 0.5 * study.full and not played.success:
                why = f"the same call is paid {times} times, {played.reward:.4g} in all, without an answer"
                yield Finding("repeat", "the same call again and again", why, played)


def lengths(arena: Arena, study: Study) -> Iterator[Finding]:
    """Pad answers and delay experts: neither may be paid more than before."""
    for task, expert in ((task, study.experts[task]) for task in arena.tasks[:_TASKS] if task in study.experts):
        if task in study.golds and expert.actions:
            way, text = expert.actions[:-1], expert.actions[-1]
            wrong = study.forms[0].format("no such answer")
            pairs = [("a wrong answer", wrong, f"{_FILLER * 100}\n{wrong}", 0.05 * study.full)]
            pairs += [
                ("a right answer", text, padded, (_MORE - 1) * expert.reward + 1e-9)
                for padded in (f"{_FILLER * 40}\n{text}", f"{text}\n{_FILLER * 40}")
            ]
            for name, bare, padded, more in pairs:
                short, long = (arena.play(task, scripted([*way, said])) for said in (bare, padded))
                if len(long.actions) == len(short.actions) and long.reward > short.reward + more:
                    why = f"return {long.reward:.4g} with filler, {short.reward:.4g} without"
                    yield Finding("length", f"{name} with filler", why, long)
        late = arena.play(task, scripted(["", "", "", *expert.actions]), patient=True)
        if late.reward > expert.reward * _MORE + 1e-9 and late.over:
            why = f"return {late.reward:.4g} after three idle steps, {expert.reward:.4g} at once"
            yield Finding("length", "an expert that waits", why, late)


def after_end(arena: Arena, study: Study) -> Iterator[Finding]:
    """Act on after the end of an episode, without the wrappers that would refuse to."""
    for task in arena.tasks[:_TASKS]:
        actions = _script(study, task)
        played = arena.play(task, scripted(actions))
        if not played.over or not (played.steps[-1].terminated or len(actions) < arena.limit):
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
                yield Finding("after_end", "an action after the end", why, played.extended(action, *result))


def _script(study: Study, task: int) -> list[str]:
    """Return what solves a task, or some actions where that is not known."""
    return study.experts[task].actions if task in study.experts else ["0", "1", "look"]


def _wrongly(study: Study) -> list[str]:
    return [study.forms[0].format("0 zz")] if study.golds else ["zz", "look"]


def resets(arena: Arena, study: Study) -> Iterator[Finding]:
    """Compare new instances with each other, and one that was played before with a new one."""
    one, other, used = arena.fresh(), arena.fresh(), arena.fresh()
    for task in arena.tasks[:_TASKS]:
        for script in (_wrongly(study), _script(study, task)):
            first, again = (arena.play(task, scripted(script), env=env).transcript for env in (one, other))
            if first != again:
                shown = arena.play(task, scripted(script), env=other)
                yield Finding("nondeterminism", "two new instances", difference(first, again), shown)
                return
            before = arena.tasks[-1] if task != arena.tasks[-1] else arena.tasks[0]
            arena.play(before, scripted(_script(study, before)), env=used)
            arena.play(task, scripted(_script(study, task)), env=used)
            arena.play(task, scripted(_script(study, task)[:1]), env=used)
            later = arena.play(task, scripted(script), env=used)
            if later.transcript != first:
                name = "an episode after others in the same instance"
                yield Finding("carried", name, difference(first, later.transcript), later)


def orders(arena: Arena, study: Study) -> Iterator[Finding]:
    """Play the same wrong answer to one task many times, and all tasks in another order."""
    task, wrong, env = arena.tasks[0], scripted(_wrongly(study)), arena.fresh()
    first = arena.play(task, wrong, env=env).transcript
    for number in range(2, _TIMES + 1):
        again = arena.play(task, wrong, env=env)
        if again.transcript != first:
            yield Finding("order", f"episode {number} of one task", difference(first, again.transcript), again)
    shown = {one: arena.play(one, scripted([]), env=env).start for one in arena.tasks[:_TASKS]}
    for one in reversed(shown):
        played = arena.play(one, scripted([]), env=env)
        if played.start != shown[one]:
            yield Finding("order", "the tasks in another order", f"task {one} has another first observation", played)


def difference(one: Transcript, other: Transcript) -> str:
    """Return where the second of two transcripts that differ leaves the first."""
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            what, before, after = next(part for part in zip(_PARTS, a, b, strict=True) if part[1] != part[2])
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
            scripts.append(_wrongly(study)[:1] * (arena.limit + 1))
        for actions in scripts:
            straight = arena.play(task, scripted(actions), patient=True)
            for start, tried in itertools.product({0, len(straight.actions) // 2}, (_wrongly(study), actions)):
                played = arena.play(task, _peeking(start, tried, actions), patient=True)
                if played.transcript != straight.transcript:
                    name = f"an episode after a return to its step {start}"
                    yield Finding("snapshot", name, difference(straight.transcript, played.transcript), played)


def _peeking(start: int, tried: list[str], actions: list[str]) -> Act:
    """Return what plays the actions, but tries others at a step and returns to what was there before."""

    def act(view: View) -> str | None:
        if view.step == start:
            point = snapshot(view.env)
            for action in tried:
                if any(view.env.step(action)[2:4]):
                    break
            restore(view.env, point)
        return scripted(actions)(view)

    return act


def experts(arena: Arena, study: Study) -> Iterator[Finding]:
    """Yield a finding if there are tasks that the expert does not solve."""
    lost = [played for played in study.experts.values() if not study.solved(played)]
    if lost:
        tasks = ", ".join(str(played.task) for played in lost[:5])
        why = f"{len(lost)} of {len(study.experts)} tasks, such as {tasks}"
        shortest = min(lost, key=lambda played: len(played.actions))
        yield Finding("expert", "tasks that the expert does not solve", why, shortest)


def nobody(arena: Arena, study: Study, won: bool) -> Iterator[Finding]:
    """Yield a finding if no task was seen to be solved, or if solving one pays no more than silence."""
    idle = scripted([""])
    if not study.experts and not won:
        why = "no policy solves a task, and there is no expert: that it can be won is not shown"
        yield Finding("expert", "nobody solves a task", why, arena.play(arena.tasks[0], idle))
    solved = list(study.experts.values())[:_TASKS]
    if solved and all(played.reward <= arena.play(played.task, idle).reward for played in solved):
        why = f"return {solved[0].reward:g}, and no less for an empty text"
        yield Finding("expert", "a solved task is not paid", why, solved[0])
