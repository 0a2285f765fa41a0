"""The score: what has to be there in the end, less what should not. By default only a full one is paid."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from agent_envs.datasets.helpdesk.generated.domain import Domain
from agent_envs.datasets.helpdesk.generated.solving import HelpDeskTask
from agent_envs.envs.helpdesk.desk import Cell, Clerk, Desk, open_desk


class Gold(NamedTuple):
    """What is right in the end."""

    changes: Mapping[Cell, Any]
    notes: Set[tuple[str, str, str, str]]
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
    for deed in task.solution.deeds:
        act = domain.act(deed.act)
        if deed.kind == "act" and act:
            clerk.act({"id": deed.item, **deed.arguments}, act)
        elif deed.kind == "press" and act:
            desk.press(act)
        else:
            desk.letters.append(deed)
    told = {f"{deed.act} {deed.item}": deed.told for deed in task.solution.deeds if deed.told is not None}
    return Gold(desk.diff(), desk.notes(), told)


def score_of(gold: Gold, desk: Desk, beliefs: Mapping[str, int]) -> Score:
    """Return the score of a desk and what a customer believes: max(0, entries met - harm) / entries.

    Harm is every changed cell that should be otherwise, every note too many and every fault of conduct.
    """
    changes, notes = desk.diff().items(), desk.notes()
    parts = (changes, gold.changes.items()), (notes, gold.notes), (beliefs.items(), gold.told.items())
    met = [len(there & wanted) for there, wanted in parts]
    harm = len(changes - gold.changes.items()) + len(notes - gold.notes) + len(desk.faults)
    shares = [count / len(wanted) if wanted else 1.0 for count, (_, wanted) in zip(met, parts, strict=True)]
    components = dict(zip(("changes", "notes", "told"), shares, strict=True)) | {"conduct": float(not desk.faults)}
    return Score(max(0, sum(met) - harm) / len(gold), sum(met) == len(gold) and not harm, components)
