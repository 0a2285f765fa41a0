"""The generated tasks of each split: task i is a function of the split's name, the levels, the domains and i alone."""

from __future__ import annotations

from collections.abc import Sequence

from agent_envs.checks import choice
from agent_envs.datasets.generated_tasks import GeneratedTasks, parse_families, parse_range, stream
from agent_envs.datasets.helpdesk.generated.domain import domain_names, load_domain
from agent_envs.datasets.helpdesk.generated.drawing import World
from agent_envs.datasets.helpdesk.generated.solving import HelpDeskTask

DEFAULT_LEVEL = "1-8"
SPLITS = {**GeneratedTasks.sizes, "new": 1_000, "twins": 1_000}


class HelpDeskTasks(GeneratedTasks[HelpDeskTask]):
    """The generated tasks of one split.

    Args:
        split: "train" (100,000 tasks), "validation", "test", "new" (other domains) or "twins" (1,000 each). Tasks
            2i and 2i + 1 of "twins" differ in one fact, so that something else is right.
        level: 1 to 8, or a range like "2-4" from which each task's level is drawn evenly.
        domains: "all", or names of domains.
    """

    sizes = SPLITS

    def __init__(self, split: str = "train", level: int | str | Sequence[int] = DEFAULT_LEVEL, domains: object = "all"):
        self.levels = parse_range("level", level, 1, 8)
        choice("split", split, self.sizes)
        known = [name for name in domain_names() if load_domain(name).unseen == (split == "new")]
        self.domains = parse_families(domains, known, "domains")
        some = "" if self.domains == tuple(known) else f"/{'+'.join(self.domains)}"
        self._name = f"helpdesk/{split}/{self.levels}{some}"
        super().__init__(split, split, self.levels, self.domains, cache=64)

    def get(self, index: int) -> HelpDeskTask:
        twins = self.split == "twins"
        draws = stream(f"{self._name}/{index // 2 * 2 if twins else index}")
        world = World(draws, load_domain(draws.pick(self.domains)), draws.between(*self.levels), self.split)
        if twins and index % 2:
            world.become_twin()
        return world.task(f"{self._name}/{index}")
