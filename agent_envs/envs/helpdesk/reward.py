"""The score: what has to be there in the end, less what should not. By default only a full one is paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent_envs.datasets.helpdesk.generated.domain import Domain
from agent_envs.datasets.helpdesk.generated.solving import HelpDeskTask
from agent_envs.envs.helpdesk.desk import Cell, Clerk, Desk, open_desk


class Gold(NamedTuple):
    """What is right in the end."""

    changes: Mapping[Cell, Any]
    notes: frozenset[tuple[str, str, str, str]]
    told: Mapping[str, int]
    """The amounts that the customer has to know, by the act and the item."""

    def __len__(self) -> int:
        return len(self.changes) + len(self.notes) + len(self.told)


class Score(NamedTuple):
    """How much of it is there."""

    score: float
    perfect: bool
    components: dict[str, float]
    """Shares of what had to be changed, noted and told, and 1 for good conduct."""


UNPAID = Score(0.0, False, {})


def gold_of(task: HelpDeskTask, domain: Domain) -> Gold:
    """Return what is right: the right deeds done at a desk of its own."""
    desk = open_desk(task, domain)
    clerk = Clerk(desk, task, domain)
    told = {}
    for deed in task.solution.deeds:
        if deed.kind == "act":
            act = domain.acts[deed.act]
            clerk.act({"id": deed.item, **deed.arguments}, act)
            if deed.told and act.amount is not None:
                told[f"{deed.act} {deed.item}"] = int(deed.arguments[act.amount.name])
        elif deed.kind == "press":
            if (pressed := domain.act(deed.act)) is not None:
                desk.press(pressed)
        else:
            desk.letters.append(deed)
    return Gold(desk.diff(), frozenset(desk.notes()), told)


def score_of(gold: Gold, desk: Desk, beliefs: Mapping[str, int]) -> Score:
    """Return the score of a desk and what a customer believes: max(0, entries met - harm) / entries.

    Harm is every changed cell that should be otherwise, every note too many and every fault of conduct.
    """
    diff, notes = desk.diff(), frozenset(desk.notes())
    changed = sum(diff.get(cell) == value for cell, value in gold.changes.items())
    noted = len(notes & gold.notes)
    told = sum(beliefs.get(key) == amount for key, amount in gold.told.items())
    harm = sum(cell not in gold.changes or gold.changes[cell] != value for cell, value in diff.items())
    harm += len(notes - gold.notes) + len(desk.faults)
    met = changed + noted + told
    parts = ((changed, gold.changes), (noted, gold.notes), (told, gold.told))
    shares = [count / len(wanted) if wanted else 1.0 for count, wanted in parts]
    components = dict(zip(("changes", "notes", "told"), shares, strict=True)) | {"conduct": float(not desk.faults)}
    return Score(max(0, met - harm) / len(gold), met == len(gold) and not harm, components)
