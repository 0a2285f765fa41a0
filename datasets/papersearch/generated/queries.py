"""Queries over the generated literature, in the style of related-work questions.

    "Which papers study stadal korvath graphs for legal text?"  ->  the 2 to 30 papers that do, up to the query's day

Of twenty queries, eight ask for a topic, six for a topic in one setting, three for a paper and all that cite it, and
three for two neighbouring topics. Every query is a function of split, size, share of hidden papers and index.
"""

from __future__ import annotations

from datetime import date as day

from agent_envs.datasets.generated_tasks import Draws, GeneratedTasks, Impossible, stream
from agent_envs.datasets.papersearch.generated import literature as made
from agent_envs.datasets.papersearch.generated.literature import PLAIN, TOPICS, WORDS, Literature, PlannedPaper
from agent_envs.datasets.papersearch.rows import PaperTask

FEWEST, MOST = 2, 30  # papers that answer a query
_KINDS = (*("topic",) * 8, *("setting",) * 6, *("followups",) * 3, *("pair",) * 3)


class GeneratedQueries(GeneratedTasks[PaperTask]):
    """The queries of one split, each made when it is asked for; the arguments are those of `literature`."""

    def __init__(self, split: str, papers: int = 2000, hidden: float = 0.4) -> None:
        super().__init__(split, split, papers, hidden, cache=1024)
        self.world = made.literature(split, papers, hidden)

    def get(self, index: int) -> PaperTask:
        world = self.world
        draws = stream(f"{world.name}/query/{index}")
        kind = draws.pick(_KINDS)
        for _ in range(1000):
            try:
                values, papers = _asked(kind, world, draws)
                gold, latest = _up_to_a_day(papers, draws)
            except Impossible:
                continue
            return PaperTask(
                task_id=f"papersearch/{world.split}/{index}",
                query=draws.pick(WORDS["queries"][kind]).format(**values),
                titles=tuple(paper.title for paper in gold),
                ids=tuple(world.paper_id(paper.number) for paper in gold),
                date=latest,
                query_type=kind,
            )
        raise AssertionError("every literature of 100 papers has topics to ask for")


def _asked(kind: str, world: Literature, draws: Draws) -> tuple[dict[str, str], list[PlannedPaper]]:
    """Return what a query of a kind names, and the papers that answer it at any date."""
    topic = world.topic(draws.between(0, world.topics - 1))
    if kind == "topic":
        return {"a": topic.name}, list(topic.papers)
    if kind == "setting":
        setting = draws.pick(topic.papers[:-1]).setting
        if not setting:
            raise Impossible
        return {"a": topic.name, "s": setting}, [paper for paper in topic.papers if paper.setting == setting]
    if kind == "followups":
        first = draws.pick(topic.papers)
        if first.kind != PLAIN or not first.citations:
            raise Impossible
        return {"x": first.method}, [first, *map(world.planned, first.citations)]
    start = topic.number // TOPICS * TOPICS
    other = world.topic(draws.between(start, min(start + TOPICS, world.topics) - 1))
    if topic is other:
        raise Impossible
    return {"a": topic.name, "b": other.name}, [*topic.papers, *other.papers]


def _up_to_a_day(papers: list[PlannedPaper], draws: Draws) -> tuple[list[PlannedPaper], str]:
    """Return the papers published up to a day, drawn so that at least half are, and the day."""
    papers = sorted(papers, key=lambda paper: (paper.day, paper.number))
    count = draws.between(max(FEWEST, len(papers) // 2), min(MOST, len(papers)))
    last = papers[count - 1].day
    following = papers[count].day if count < len(papers) else last + 365
    if following == last:
        raise Impossible
    return papers[:count], str(day.fromordinal(last + draws.between(0, following - last - 1)))
