"""A paper service, a judge and a task that are tables, for tests of paper search."""

from agent_envs.datasets.papersearch.rows import PaperTask
from agent_envs.envs.papersearch.env import PaperSearchEnv
from agent_envs.errors import UnknownPaperError


class Backend:
    """Papers whose titles hold the query, or those that `searches` names; broken on demand."""

    blocking = False
    broken = None

    def __init__(self, *papers, edges=None, searches=None):
        self.papers = {paper.id: paper for paper in papers}
        self.edges, self.searches = edges or {}, searches

    def search(self, query, k=10, before=None):
        if self.broken:
            raise self.broken
        if self.searches is not None:
            return [self.papers[i] for i in self.searches[query]][:k]
        return [paper for paper in self.papers.values() if query in paper.title][:k]

    def expand(self, paper_id):
        if self.searches is not None and paper_id not in self.edges:
            raise UnknownPaperError(paper_id)
        return [self.papers[i] for i in self.edges.get(paper_id, ())]


class Judge:
    """Scores by the ids of papers, 0.5 for others; notes what it was asked."""

    def __init__(self, **scores):
        self.given, self.asked = scores, []

    def scores(self, query, papers):
        self.asked.append([paper.id for paper in papers])
        return [self.given.get(paper.id, 0.5) for paper in papers]


class OneTask:
    name, split = "generated", "train"

    def __init__(self, task):
        self.task = task

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.task


def make(backend, task=None, **kwargs):
    """An environment of one task, at its beginning."""

    class Env(PaperSearchEnv):
        def open_tasks(self):
            super().open_tasks()
            return OneTask(task or PaperTask("t", "deep things", ("Deep A", "Deep B"), date="2023-06"))

    env = Env(backend=backend, **{"selector": Judge(), **kwargs})
    env.reset(options={"index": 0})
    return env
