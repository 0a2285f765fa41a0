"""Generated questions about pages, by family and level.

Task i of a split is a function of the split's name, i, the families and the level alone. A code of three letters or
more that is read on a page of one split is on no page of another: the numbers of its letters add up to another
remainder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agent_envs.datasets.generated_tasks import GeneratedTasks, Impossible, parse_families, parse_range, stream
from agent_envs.datasets.picturesearch.generated.documents import chart, form, table
from agent_envs.datasets.picturesearch.generated.paths import follow
from agent_envs.datasets.picturesearch.generated.sheet import Asked, Draft, PictureTask
from agent_envs.datasets.picturesearch.generated.yards import compare, count, find

DEFAULT_LEVEL = "1-5"
FAMILIES: dict[str, Callable[[Draft], Asked]] = {
    draw.__name__: draw for draw in (chart, compare, count, find, follow, form, table)
}
"""Each family of questions, and the function that draws a page and asks about it."""


class GeneratedPages(GeneratedTasks[PictureTask]):
    """The generated questions of one split.

    Args:
        split: "train" (100,000 questions), "validation" or "test" (1,000 each).
        level: 1 to 5, or a range like "2-4", from which each question's level is drawn.
        families: As for `parse_families`.
    """

    def __init__(
        self, split: str, level: int | str | Sequence[int] = DEFAULT_LEVEL, families: str | Iterable[str] = "all"
    ) -> None:
        self.levels = parse_range("level", level, 1, 5)
        self.families = parse_families(families, FAMILIES)
        super().__init__(split, split, self.levels, self.families, cache=16)
        self._prefix = f"picturesearch-generated/{split}/{self.levels}"
        if len(self.families) < len(FAMILIES):
            self._prefix += f"/{'+'.join(self.families)}"

    def get(self, index: int) -> PictureTask:
        task_id = f"{self._prefix}/{index}"
        draws = stream(task_id)
        level, family = draws.between(*self.levels), draws.pick(self.families)
        while True:
            draft = Draft(draws, level, self.split)
            try:
                asked = FAMILIES[family](draft)
            except Impossible:
                continue
            sheet = draft.sheet()
            return PictureTask(task_id, asked.question, asked.answers, sheet, asked.stages, asked.proof, family, level)
