"""Paper search: answer a query with a pool of papers, found by searching and by following citations.

    query   "Could you list research that examined diversity in conversational agents?"
    gold    ["Towards Diverse Dialogue Responses", ...]         date  2023-10-24

The tools, the pool and the rewards (`agent_envs.envs.papersearch.reward`) follow Agent-R1's paper search recipe and
PaperScout. Titles are compared as in PaSa's evaluation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Sized
from typing import Any

import numpy as np

from agent_envs.checks import choice, integer, number
from agent_envs.checks import shown as quoted
from agent_envs.datasets.files import find_files
from agent_envs.datasets.papersearch.corpus import corpus_papers, data_papers, generated_papers
from agent_envs.datasets.papersearch.generated.literature import LARGEST, SMALLEST, literature
from agent_envs.datasets.papersearch.generated.queries import GeneratedQueries
from agent_envs.datasets.papersearch.rows import SUFFIXES, TASK, PaperTask, query_rows
from agent_envs.datasets.paths import data_name
from agent_envs.envs.papersearch.episode import (
    MAX_SHOWN_QUERY,
    ExpandTool,
    FinishTool,
    Found,
    PaperState,
    Pooled,
    SearchPapersTool,
    rejection,
    render_papers,
    usable_calls,
)
from agent_envs.envs.papersearch.expert import expert_text, wrong_text
from agent_envs.envs.papersearch.prompt import CAPO, FIELDS, INSTRUCTIONS, papersearch_prompt
from agent_envs.envs.papersearch.reward import (
    CALL_REWARDS,
    ERROR,
    OK,
    REPEATED,
    SUCCESS_RECALL,
    ScoredCall,
    retrieval_metrics,
)
from agent_envs.errors import ConfigError
from agent_envs.messages import ParseFailure, ToolCall, ToolSpec, join_tool_results
from agent_envs.per_process import PerProcess
from agent_envs.retrieval.papers import (
    CachedSelector,
    GoldSelector,
    PaperBackend,
    Selector,
    open_backend,
    open_selector,
)
from agent_envs.rewards import total
from agent_envs.tasks import TaskSource
from agent_envs.text import clean_text
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, ToolResult
from agent_envs.tools.base import open_specs, tool_spec

_selectors: PerProcess[CachedSelector] = PerProcess()
_MAX_OBSERVATION = 1 << 18  # characters; enough for five calls with ten long abstracts each


class PaperSearchEnv(ToolEnv):
    """Find the papers that answer a query, by searching and following citations.

    ## Description
    The policy gets a query as a researcher would ask it, and looks for papers with a search engine and through
    references and citations. A selector scores what is found; papers that fit join a pool, which is the answer. Search
    alone does not find all of them: some papers on a topic never name it, but citations lead there. Papers published
    after the query's date are not shown.

    ## Action Space
    Any text with tool calls in Hermes form, up to `max_calls` a step, which run in parallel:
    `<tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call>`, `expand{paper_id}` for a paper that
    was in the pool before this step, and `finish{}`. A text without a call finishes, too.

    ## Observation Space
    Text: the query at reset; then for each call the call itself, the number of papers found, and the best `shown` of
    those that are new in the pool: `[id] (score) [NEW] Title` and `Abstract: ...`, cut to `abstract_words` words. The
    wrapper `RebuildPrompt` shows the query, the calls so far and the best papers of the pool instead.

    ## Starting State
    An empty pool and a query drawn from the split, or `options={"index": i}`, or `options={"question": "..."}` for your
    own query, which has no known answers and so needs another `selector`.

    ## Rewards
    A paper is new if it was not in the pool before the call; the calls of a step count in the order in which they are
    written (`agent_envs.envs.papersearch.reward`). A paper joins the pool with a score of at least 0.01.
    - `reward="agentr1"`: each call earns the sum of the 3 best scores among its new papers; -0.5 for the expansion of a
      paper that is not in the pool and for a call that is repeated to the letter; 0 for a call that fails or finds
      nothing new.
    - `reward="paperscout"`: the same, but a score of at least 0.4 counts as 1 and any other as 0, and a search that
      finds something new costs 0.1, such an expansion 0.05.
    - `reward="f1"`: the F1 of the pool when the policy finishes, and 0 before it and at the step limit.

    ## Episode End
    Terminates with `finish` or a text without a call. Truncated after 5 steps.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the query and the pool), `invalid_action` (a call that could not
    run, was repeated, or names a paper that is not in the pool), `score` (F1 of the pool), `success` (the policy has
    finished with a recall of at least 0.9), `reward_components` (`call_1`, `call_2`, ... in the order of the calls;
    `f1` at the end for that reward), `tool_results` (list of `name`, `content`, `error`), `metrics` (`precision`,
    `recall`, `recall_at_20`, `recall_at_50`, `recall_at_100`, `f1` of the pool, ranked by score; titles are compared by
    their letters), `pool` (its size), `found` (list of `id`, `title`, `score`: the papers that joined it in this step),
    `answers` (the titles of the right papers; `agentr1 score` reads `found` and `answers`), `searches`,
    `expansions`, `query_type`.

    ## Arguments
    `gym.make("AgentR1/PaperSearch-v0", split="train", data="generated", backend="local", selector="gold",
    reward="agentr1", papers=2000)`
    - `split`: "train", "validation", "test".
    - `data`: "generated"; "official" (after `agentr1 prepare papersearch`); or rows of AutoScholarQuery or
      SPARBench as released, a file (one split, "all") or a folder with one file per split.
    - `papers`: size of the generated literature, 100 to 5,000,000. Up to 20,000 papers stay in memory; more are
      indexed on disk once, under `$AGENT_ENVS_DATA/indexes`.
    - `hidden`: share of the papers on a generated topic that never name it, 0 to 0.6 (default 0.4): the difficulty.
      No search for the topic finds them; the citations of what it finds do.
    - `corpus`: another corpus for the backend "local": a papers.jsonl of `{id, title, abstract, date, citations[],
      references[]}`, unarXive's papers, SPARBench rows (their answers), a folder of any of them, or one that
      `agent_envs.retrieval.papers.local.LocalPapers.build` made. Without it, the corpus of real queries is the
      papers beside them: files of papers in their folder, and the answers as far as the rows describe them.
    - `backend`: "local" (default: BM25 with Lucene's results and the corpus's citations), another name of
      `agent_envs.retrieval.papers.opening`, or a `PaperBackend`.
    - `selector`: "gold" (default: 1 for the right papers, else 0), "lexical" (BM25, 0 to 1), another name
      of `agent_envs.retrieval.papers.opening`, or a `Selector`. Scores are cached per query and paper.
    - `reward`: see above.
    - `max_calls` (5), `top_k` (10; results of a search), `shown` (10; new papers that a call shows), `abstract_words`
      (400; words of an abstract that are shown, 0 for none).
    - `rules`: "released": no tool finish, other calls are ignored, ids are taken as written, all calls are in the
      history, what an expansion finds has an abstract, and papers of any date count: docs/wrappers.md.
    - `tool_timeout`: see `ToolEnv`. Services have their own time limits; when one fails, a `BackendError` ends the
      episode.

    ## Data
    Generated: a literature of invented papers per split, whose invented words occur in no other split; 100,000 train,
    1,000 validation and 1,000 test queries, each with 2 to 30 right papers: 8 of 20 ask for a topic, 6 for a topic in
    one setting, 3 for a paper and all that cite it, 3 for two neighbouring topics. Of the papers on a topic, some use
    another name for it, which surveys and some other papers mention, and a share of `hidden` never name it.
    `expert_action()` solves the queries using only what it is shown. Official: AutoScholarQuery, 33,551 train, 1,000
    validation and 1,000 test queries, and RealScholarQuery, 50, as the split "real" (He et al. 2025,
    https://github.com/bytedance/pasa); no expert.
    """

    instructions = INSTRUCTIONS
    reset_options = ("index", "question")
    settled_arguments = ("tools", "max_parallel_calls")
    recorded_arguments = ("reward", "papers", "hidden", "max_calls", "top_k", "shown", "abstract_words")
    prompt_templates = {"papersearch": papersearch_prompt, "capo": CAPO}  # noqa: RUF012
    prompt_fields = FIELDS

    def __init__(
        self,
        *,
        corpus: str | os.PathLike[str] | None = None,
        backend: str | PaperBackend = "local",
        selector: str | Selector = "gold",
        reward: str = "agentr1",
        papers: int = 2000,
        hidden: float = 0.4,
        max_calls: int = 5,
        top_k: int = 10,
        shown: int = 10,
        abstract_words: int = 400,
        **kwargs: Any,
    ) -> None:
        self.reward = choice("reward", reward, CALL_REWARDS)
        self.top_k = integer("top_k", top_k, minimum=1)
        self.shown = integer("shown", shown, minimum=1)
        self.abstract_words = integer("abstract_words", abstract_words, minimum=0)
        if not isinstance(backend, (str, PaperBackend)):
            raise ConfigError(f"backend must be a name such as 'local' or a PaperBackend, got {quoted(backend)}")
        if corpus is not None and not (isinstance(corpus, (str, os.PathLike)) and str(corpus)):
            raise ConfigError(f"corpus must be the path of a file or a folder of papers, got {quoted(corpus)}")
        if corpus is not None and backend != "local":
            raise ConfigError(f"corpus= requires backend='local', got backend={backend!r}")
        kwargs.setdefault("max_observation_length", _MAX_OBSERVATION)
        # The first reset opens the corpus and makes the tools, so that making an environment is cheap.
        super().__init__(tools=ToolRegistry(), max_parallel_calls=max_calls, **kwargs)
        data = data_name(self.data)
        if data == "generated":
            number("hidden", hidden)
            literature(self.split, integer("papers", papers, minimum=SMALLEST, maximum=LARGEST), hidden)
        else:
            if (papers, hidden) != (2000, 0.4):
                raise ConfigError(f"papers= and hidden= require data='generated'; leave them out for data={data!r}")
            find_files(data, self.split, task=TASK, suffixes=SUFFIXES)
        self.corpus = corpus
        self.backend = backend
        self.selector = selector if isinstance(selector, (str, CachedSelector)) else CachedSelector(selector)
        self.papers, self.hidden = papers, hidden

    def open_tasks(self) -> TaskSource:
        queries = None if self.data == "generated" else query_rows(self.data, self.split)
        if queries is not None and self.selector == "gold" and not queries[0].titles:  # then the data set has none
            raise ConfigError(
                f"selector='gold' has to know the right papers, and rows of {self.data} name none: use another, such "
                "as selector='lexical' or the address of a model that judges papers"
            )
        backend = self._open_backend()
        if isinstance(self.selector, str) and self.selector != "gold":
            _cached_selector(self.selector)
        tools = [SearchPapersTool(self, backend), ExpandTool(self, backend), FinishTool()]
        self.registry = ToolRegistry(tools[:2] if self.released else tools)
        if queries is not None:
            queries.documents = len(backend) if isinstance(backend, Sized) else 0
            return queries
        return GeneratedQueries.shared(self.split, self.papers, self.hidden)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"registry": ToolRegistry()}

    def _open_backend(self) -> PaperBackend:
        """Return the backend, which all environments of the process share."""
        if not isinstance(self.backend, str):
            return self.backend
        if self.backend != "local":
            return open_backend(self.backend)
        if self.corpus is not None:
            return corpus_papers(self.corpus)
        if self.data != "generated":
            return data_papers(self.data)
        return generated_papers(literature(self.split, self.papers, self.hidden))

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools search, expand and, unless the rules are the released ones, finish."""
        specs = [tool_spec(SearchPapersTool), tool_spec(ExpandTool), tool_spec(FinishTool)]
        return open_specs(specs[:2]) if self.released else specs

    def own_task(self, question: str) -> PaperTask:
        if self.selector == "gold":
            raise ConfigError("selector='gold' knows no answers to a query of your own; use selector='lexical'")
        return PaperTask("papersearch/question", question, titles=())

    def begin(self, task: PaperTask) -> tuple[str, PaperState]:
        return task.query, PaperState()

    def act(self, action: str) -> Outcome:
        state: PaperState = self.state
        state.problems, state.new = [], []
        state.turns += 1
        outcome = super().act(action)
        if outcome.invalid_action and not outcome.extra:  # no call, and no text
            state.problems = [str(outcome.observation)]
        return outcome

    usable_calls = staticmethod(usable_calls)

    def answer(self, text: str) -> Outcome:
        return self._finish(Outcome(f"The search ends with {len(self.state.pool)} papers."))

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        scored, shown = self._settle(results)
        reward = CALL_REWARDS[self.reward]
        components = {f"call_{n}": reward(call) for n, call in enumerate(scored[: self.max_parallel_calls], start=1)}
        self.state.gains.append(sum(len(call.scores) for call in scored))
        self.state.problems = [result["content"] for result in shown if result["error"]]
        outcome = Outcome(
            join_tool_results(shown),
            reward=total(components.values()),
            invalid_action=any(call.status != OK for call in scored),  # malformed calls have the status ERROR
            components=components,
            extra={"tool_results": shown},
        )
        finished = any(call.kind == "finish" and call.status == OK for call in scored)
        return self._finish(outcome) if finished else outcome

    def refuse(self, action: str, results: list[ToolResult]) -> tuple[str, dict[str, Any]]:
        """Answer a text without carrying it out; the problems become part of the state."""
        self.state.new = []
        self.state.problems = [clean_text(result.content) for result in results]
        return super().refuse(action, results)

    def _settle(self, results: Sequence[ToolResult]) -> tuple[list[ScoredCall], list[dict[str, Any]]]:
        """Add what was found to the pool, call by call; return each call's outcome and its tool result."""
        searches = [result.content for result in results if isinstance(result.content, Found)]
        fresh = {paper.id: paper for each in searches for paper in each.papers if paper.id not in self.state.pool}
        selector: Selector = self.selector  # type: ignore[assignment]
        if isinstance(self.selector, str):
            gold = self.selector == "gold"
            selector = GoldSelector(self.task.titles, self.task.ids) if gold else _cached_selector(self.selector)
        scored = selector.scores(self.task.query, list(fresh.values())) if fresh else []
        scores = dict(zip(fresh, scored, strict=True))
        calls, shown = [], []
        for result in results:
            if not isinstance(result.content, Found):
                calls.append(ScoredCall(result.name, ERROR))
                shown.append(result.to_info())
                continue
            call = result.content
            status = REPEATED if call.status == OK and self.state.has_run(call) else call.status
            if self.released or status == OK:
                self.state.write_down(call, None if self.released else MAX_SHOWN_QUERY)
            new = self.state.keep(call, scores) if status == OK else []
            calls.append(ScoredCall(result.name, status, tuple(pooled.score for pooled in new)))
            shown.append({"name": result.name, "content": self._show(call, status, new), "error": status != OK})
        return calls, shown

    def _show(self, found: Found, status: str, new: list[Pooled]) -> str:
        if found.kind == "finish":
            return "The search ends."
        if status != OK:
            return rejection(found, status)
        head = f"{self.state.history[-1]}: {len(found.papers)} found, {len(new)} new"
        if not new:
            return head
        self.state.shown += [pooled.paper.id for pooled in new[: self.shown]]
        return f"{head}\n{clean_text(render_papers(new[: self.shown], self.abstract_words))}"

    def _finish(self, outcome: Outcome) -> Outcome:
        metrics = self._metrics()
        if self.reward == "f1":
            outcome.components = {**outcome.components, "f1": metrics["f1"]}
        outcome.reward = total(outcome.components.values())
        outcome.terminated = True
        outcome.success = metrics["recall"] >= SUCCESS_RECALL
        return outcome

    def _metrics(self) -> dict[str, float]:
        return retrieval_metrics([pooled.paper.title for pooled in self.state.ranked()], self.task.titles)

    def anchor(self) -> str:
        pool = sorted(f"{paper_id}{'*' if p.expanded else ''}" for paper_id, p in self.state.pool.items())
        return clean_text("\n".join([self.task.query, *pool]))

    def info(self, outcome: Outcome) -> dict[str, Any]:
        state, metrics = self.state, self._metrics()
        return super().info(outcome) | {
            "score": metrics["f1"],
            "metrics": metrics,
            "pool": len(state.pool),
            "found": [{"id": p.paper.id, "title": p.paper.title, "score": p.score} for p in state.new],
            "answers": list(self.task.titles),
            **({"answer_ids": list(self.task.ids)} if self.released else {}),
            "searches": len(state.searched),
            "expansions": sum(pooled.expanded for pooled in state.pool.values()),
            "query_type": self.task.query_type,
        }

    def format_call(self, name: str, arguments: dict[str, Any]) -> str:
        """Write a call; without a tool to finish, a text."""
        return "That is all." if self.released and name == "finish" else super().format_call(name, arguments)

    def right_answer(self) -> str:
        return "\n".join(self.task.titles)

    def prompt_state(self) -> dict[str, Any]:
        state: PaperState = self.state
        best = [*state.ranked(expanded=True)[: self.shown], *state.ranked(expanded=False)[: self.shown]]
        cut = "..." if self.released else " ..."
        return {
            "query": self.task.query,
            "calls": list(state.history),
            "papers": [
                render_papers([pooled], self.abstract_words, cut)
                for pooled in (state.listed(self.shown) if self.released else best)
            ],
            "pool": len(state.pool),
            "problems": state.problems[-3:],
        }

    def expert_action(self) -> str | None:
        """Return the next text of a solver that reads what was shown; None for real queries and the user's own."""
        if self.data != "generated" or not self.task.titles:
            return None
        known = self.task.query, self.state, self.format_call, self.max_parallel_calls, self.abstract_words
        return expert_text(*known, ends_alone=self.released)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the expert's text or, with probability `noise`, well-formed calls that find little."""
        right = self.expert_action()
        if right is None or rng.random() >= noise:
            return right
        return wrong_text(self.task.query, self.state, self.format_call, right, rng)


def _cached_selector(spec: str) -> CachedSelector:
    return _selectors.get(spec, lambda: CachedSelector(open_selector(spec)))
