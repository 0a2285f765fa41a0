"""Multi-hop question answering by searching: HotpotQA, 2WikiMultihopQA, MuSiQue, and a generated encyclopaedia.

    question   "Which magazine was started first Arthur's Magazine or First for Women?"
    answer     "Arthur's Magazine"

Scoring follows the data sets' own scripts (`agent_envs.envs.qa.reward`). The styles follow Agent-R1's
hotpotqa recipe (`tool`), ReAct's hotpotqa notebook (`react`) and Search-R1 (`search_r1`); see `agent_envs.parsers`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Sized
from typing import Any, ClassVar

import numpy as np

from agent_envs.checks import boolean, choice, integer, shown
from agent_envs.datasets.generated_tasks import parse_range
from agent_envs.datasets.paths import data_name
from agent_envs.datasets.qa.corpus import ENGINES, corpus_retriever, generated_retriever, rows_retriever
from agent_envs.datasets.qa.generated.encyclopaedia import LARGEST, SMALLEST, encyclopaedia
from agent_envs.datasets.qa.generated.questions import HOPS, GeneratedQA
from agent_envs.datasets.qa.rows import QATask, find_qa_files, qa_rows
from agent_envs.envs.qa.episode import LookupTool, OpenPageTool, QAState, search_calls
from agent_envs.envs.qa.expert import expert_text, informed_text, wrong_text
from agent_envs.envs.qa.prompt import CAPO, FIELDS, INSTRUCTIONS, NO_QUERY, PARSERS, TOP_K, hotpotqa_prompt
from agent_envs.envs.qa.reward import REWARDS, answer_scores, qa_format
from agent_envs.errors import ConfigError
from agent_envs.messages import ToolCall, ToolSpec
from agent_envs.retrieval import Retriever, open_retriever
from agent_envs.rewards.short_answers import f1, squad_f1
from agent_envs.rewards.tagged import bare, last_answer
from agent_envs.tasks import IndexedTasks, TaskSource
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, ToolResult
from agent_envs.tools.base import open_specs, tool_spec
from agent_envs.tools.search import SearchResults, SearchTool, check_limits


class QAEnv(ToolEnv):
    """Answer a question with a search engine. The three tasks below differ only in their data."""

    dataset: ClassVar[str]  # the name of the data set in `agentr1 prepare`
    default_hops: ClassVar[int | str]  # the number of articles that generated questions need
    answer_f1 = staticmethod(f1)  # of the data set's official evaluation
    reset_options = ("index", "question")
    settled_arguments = ("tools", "max_parallel_calls")
    recorded_arguments = (
        *("style", "reward", "hops", "articles", "force_first_search", "max_calls", "passage_chars", "top_k"),
    )
    prompt_templates = {"hotpotqa": hotpotqa_prompt, "capo": CAPO}  # noqa: RUF012
    prompt_fields = FIELDS

    def __init__(
        self,
        *,
        corpus: str | os.PathLike[str] | None = None,
        retriever: str | os.PathLike[str] | Retriever | None = None,
        style: str = "tool",
        parser: str | None = None,
        reward: str = "em",
        hops: int | str | None = None,
        articles: int = 1000,
        force_first_search: bool = False,
        max_calls: int = 4,
        passage_chars: int = 1200,
        top_k: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.style = choice("style", style, INSTRUCTIONS)
        self.reward = choice("reward", reward, REWARDS)
        if style != "tool" and (reward == "qa_format" or force_first_search):
            argument = "reward='qa_format'" if reward == "qa_format" else "force_first_search=True"
            raise ConfigError(f"{argument} requires style='tool', got style={style!r}")
        if parser is not None and (style != "tool" or (reward == "qa_format" and parser != "hermes")):
            other = "reward='qa_format'" if style == "tool" else f"style={style!r}"
            raise ConfigError(f"{other} has its own format; leave out parser={parser!r}")
        if corpus is not None and not (isinstance(corpus, (str, os.PathLike)) and os.fspath(corpus)):
            raise ConfigError(f"corpus must be the path of a passages.jsonl or of an index, got {shown(corpus)}")
        searches = isinstance(retriever, (str, os.PathLike, Retriever)) and not isinstance(retriever, type)
        if retriever is not None and not (searches and retriever != ""):
            raise ConfigError(
                "retriever must be 'bm25', 'lucene', the address of a search server, the folder of an index, "
                f"'dense:FOLDER', or a Retriever (search, search_many, document), got {shown(retriever)}"
            )
        if corpus is not None and retriever is not None and retriever not in ENGINES:
            raise ConfigError("corpus= requires retriever='bm25' or 'lucene'; other retrievers have their own corpus")
        # The first reset opens the index and makes the tools, so that making an environment is cheap.
        own: dict[str, Any] = {"parser": parser or PARSERS[style], "max_parallel_calls": max_calls}
        super().__init__(tools=ToolRegistry(), **own, **kwargs)
        data = data_name(self.data)
        self.passage_chars, self.top_k = passage_chars, TOP_K[style] if top_k is None else top_k
        check_limits(self.top_k, passage_chars)
        self.hops, self.articles = self.default_hops if hops is None else hops, articles
        if data == "generated":
            parse_range("hops", self.hops, *HOPS)
            encyclopaedia(self.split, integer("articles", articles, minimum=SMALLEST, maximum=LARGEST))
        elif hops is not None or articles != 1000:
            raise ConfigError(f"hops= and articles= apply only to data='generated'; leave them out for data={data!r}")
        else:
            find_qa_files(self.dataset, data, self.split)
        self.corpus, self.retriever, self.instructions = corpus, retriever, INSTRUCTIONS[style]
        self.force_first_search = boolean("force_first_search", force_first_search)

    def open_tasks(self) -> TaskSource:
        tasks: IndexedTasks[QATask]
        if self.data == "generated":
            tasks = GeneratedQA.shared(self.dataset, self.split, self.hops, self.articles)
        else:
            tasks = qa_rows(self.dataset, self.data, self.split)
        retriever = self._open_retriever()
        if self.data != "generated":
            tasks.documents = len(retriever) if isinstance(retriever, Sized) else 0
        if self.style == "react":
            self.registry = ToolRegistry([OpenPageTool(self, retriever), LookupTool(self)])
        else:
            layout = "numbered" if self.style == "tool" else "information"
            search = SearchTool(retriever, top_k=self.top_k, passage_chars=self.passage_chars, layout=layout)
            self.registry = ToolRegistry([search])
        return tasks

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"registry": ToolRegistry()}

    def _open_retriever(self) -> Retriever:
        """Return the retriever, which all environments of the process share."""
        if self.retriever is not None and self.retriever not in ENGINES:
            own = self.retriever
            return open_retriever(os.fspath(own)) if isinstance(own, (str, os.PathLike)) else own
        engine = str(self.retriever or "bm25")
        if self.corpus is not None:
            return corpus_retriever(self.corpus, engine)
        if self.data == "generated":
            return generated_retriever(encyclopaedia(self.split, self.articles), engine)
        return rows_retriever(self.dataset, self.data, self.split, engine)

    @property
    def tools(self) -> list[ToolSpec]:
        """The search tool in style "tool"; empty in the other styles, whose actions are plain text."""
        specs = [tool_spec(SearchTool)] if self.style == "tool" else []
        return open_specs(specs) if self.released else specs

    def own_task(self, question: str) -> QATask:
        return QATask(f"{self.dataset}/question", question, answers=(), supporting=(), question_type="", hops=0)

    def begin(self, task: QATask) -> tuple[str, QAState]:
        state = QAState()
        if not self.force_first_search:
            return task.question, state
        (result,) = self.registry.run([ToolCall("search", {"query": task.question})], timeout=self.tool_timeout)
        state.note(result.content)
        return f"{task.question}\n\n{result.content}", state

    def right_answer(self) -> str:
        return " / ".join(self.task.answers)

    def act(self, action: str) -> Outcome:
        self.state.turns.append(action)
        return super().act(action)

    usable_calls = staticmethod(search_calls)

    def after_tools(self, calls: Sequence[Any], results: Sequence[ToolResult], outcome: Outcome) -> Outcome:
        infos = outcome.extra["tool_results"]
        if not calls:
            return Outcome(NO_QUERY, invalid_action=True)
        for call, info in zip(calls, infos, strict=True):
            if self.released and info["error"]:  # as released, it stands among the searches and nothing is said of it
                info.update(content=SearchResults("", call.arguments["query"], ()), error=False)
            self.state.note(info["content"])
            info["content"] = str(info["content"])
        outcome.observation = str(outcome.observation)
        outcome.invalid_action = outcome.invalid_action or any(info["error"] for info in infos)
        if self.style != "tool":  # the others have no tools, so what a search finds is not a tool result
            outcome.extra = {"tool_results": [], "calls": len(infos)}
        return outcome

    def answer(self, text: str) -> Outcome:
        state, golds = self.state, self.task.answers
        tagged = last_answer(text) if self.style == "tool" else text
        said = text if tagged is None else tagged
        state.answer = said.strip() if self.released else bare(said)
        state.scores = answer_scores(state.answer, golds, self.answer_f1)
        reward = state.scores.get(self.reward)
        if reward is None:
            reward = qa_format(state.turns, golds, "\n".join([*state.turns, *state.observed]))
        shown = state.answer[:200]
        return Outcome(
            f"The answer given is: {shown}" if shown else "No answer was given.",
            reward=reward,
            terminated=True,
            invalid_action=not (state.answer if tagged is not None else state.scores["sub_em"]),
            score=state.scores["em"],
            success=state.scores["em"] == 1.0,
            components={self.reward: reward},
        )

    def anchor(self) -> str:
        state: QAState = self.state
        opened = [f"open: {state.page[0]}"] if state.page[0] else []
        return "\n".join([self.task.question, *sorted(filter(None, state.pages)), *opened])

    def prompt_state(self) -> dict[str, Any]:
        history = self.state.found_by
        searches = [{"query": q, "passages": [{"title": p.title, "text": p.text} for p in some]} for q, some in history]
        return {"question": self.task.question, "searches": searches}

    def info(self, outcome: Outcome) -> dict[str, Any]:
        state, task = self.state, self.task
        seen = sum(title in state.pages for title in task.supporting)
        return super().info(outcome) | {
            "answer": state.answer,
            **{name: state.scores.get(name, 0.0) for name in ("em", "f1", "sub_em")},
            "supporting_recall": seen / len(task.supporting) if task.supporting else 0.0,
            "searches": len(state.queries),
            "question_type": task.question_type,
            "hops": task.hops,
        }

    def expert_action(self) -> str | None:
        """Return the next text of a solver that reads what was shown.

        For questions from files, it searches the supporting articles by title, each once it was named, and gives the
        gold answer; None if their row names no such articles.
        """
        task, form = self.task, (self.state, self.style, self.format_call, self.max_parallel_calls)
        if not task.answers:
            return None
        return expert_text(task.question, *form) if self.data == "generated" else informed_text(task, *form)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the expert's text or, with probability `noise`, another answer or a search for another article."""
        right = self.expert_action()
        if right is None or rng.random() >= noise:
            return right
        return wrong_text(self.state, self.style, self.format_call, right, rng)


class HotpotQAEnv(QAEnv):
    """Answer questions that need several articles, with a search engine.

    ## Description
    A question whose answer needs two or more articles of an encyclopaedia: a bridge from one to the next, a comparison
    of two, or a yes-or-no question. The policy searches as often as the step limit allows and answers in a few words.
    It may answer without a search, which shows in `info["searches"]`.

    ## Action Space
    Any text. Its format depends on `style`:
    - "tool": tool calls in Hermes form, `<tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call>`, up
      to `max_calls` a step. A text without a call is the final answer: what is in the last `<answer>...</answer>`, or
      the whole text.
    - "react": one command a step, `search[entity]`, `lookup[keyword]` or `finish[answer]`, after any reasoning.
    - "search_r1": `<search>query</search>` or `<answer>answer</answer>`; the first complete one counts.

    ## Observation Space
    Text: the question at reset; then the results, which depend on `style`.
    - "tool": for each call, the best `top_k` passages, `[i] title` and the first `passage_chars` characters of each.
    - "react": the first five sentences of the entity's page or similar titles; the next sentence with the keyword.
    - "search_r1": the passages between `<information>` and `</information>`, 3 by default.

    ## Starting State
    A question drawn from the split, or `options={"index": i}`; `options={"question": "..."}` asks your own,
    which has no gold answer. With `force_first_search=True` the question comes with the results of a search for it, as
    in the released recipe.

    ## Rewards
    For the final answer; 0 before it and at the step limit:
    - `reward="em"`: 1 if the answer equals the gold answer or one of its aliases after HotpotQA's normalisation (lower
      case, no ASCII punctuation, no articles, single spaces), else 0.
    - `reward="f1"`: the best token F1 with these; "yes" and "no" score only if they are equal.
    - `reward="sub_em"`: 1 if one of them is a substring of the answer.
    - `reward="qa_format"`: the released format reward, -1 to 1, for `style="tool"`: 0.5 for each
      `<think>...</think><tool_call>...</tool_call>` turn and for a last turn `<think>...</think><answer>...</answer>`,
      at most 1, plus 1 for a substring match of the answer or 0.2 for one anywhere, minus 1.

    ## Episode End
    Terminates with the final answer. Truncated after 10 steps; the released limits are 5 ("tool") and 7 ("react"):
    `gym.make(..., max_episode_steps=5)`.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question and the titles seen), `invalid_action` (a malformed
    call, an empty query or answer; in style "tool" an untagged text without a gold answer), `score` and `success`
    (exact match, whatever the reward), `reward_components` (the reward by its name), `tool_results` (style "tool": list
    of `name`, `content`, `error`), `calls` (other styles: how many), `answer` (the final one, unmarked), `em`, `f1`,
    `sub_em`, `supporting_recall` (share of the supporting titles that were shown), `searches` (searches made),
    `question_type`, `hops` (articles needed). `em` and `f1` are the data set's own; for more see docs/evaluation.md.

    ## Arguments
    `gym.make("AgentR1/HotpotQA-v0", split="train", data="generated", style="tool", reward="em", hops=2, articles=1000)`
    - `split`: "train", "validation", "test"; a file is "all".
    - `data`: "generated", "official" (after `agentr1 prepare hotpotqa`) or the path of a json, jsonl or parquet file in
      the released or the hub's format or that of Agent-R1's data release, or of a folder with one file per split.
    - `hops`: articles per generated question: 2, 3, 4 or a range such as "2-4".
    - `articles`: size of the generated encyclopaedia, 200 to 5,000,000; above 20,000 it is indexed on disk, once.
    - `corpus`: another corpus: a passages.jsonl of `{id, title, text}` (ids may be missing) or an index's folder. The
      default is the generated articles; for "official", the paragraphs of all splits; for a path, those of the split,
      or `hotpotqa_corpus/hpqa_corpus.jsonl` beside rows that have none.
    - `retriever`: "bm25" (default) or "lucene", which index the corpus; or a retriever with its own corpus: the address
      of a search server, the folder of an index, "dense:FOLDER" (vectors: docs/scaling.md), or a `Retriever`.
    - `style`, `reward`: see above. `parser`: the format of calls in style "tool" ("hermes"): docs/tool_formats.md.
    - `force_first_search`, `max_calls` (4), `passage_chars` (1200), `top_k` (5; 3 in "search_r1"), `tool_timeout`.
    - `rules`: "released": only searches are run, and any text without a call is the answer: docs/wrappers.md.

    ## Data
    Generated: a fictional encyclopaedia per split, whose names share no word with those of another split; 100,000
    train, 1,000 validation and 1,000 test questions, 7 of 10 bridges, 2 comparisons, 1 yes or no. Every supporting
    article is needed. `expert_action()` solves them using only what it is shown. Official: 90,447 train and 7,405
    validation questions of HotpotQA (Yang et al. 2018, https://hotpotqa.github.io), CC BY-SA 4.0. There the expert
    searches the titles of the supporting articles that a row names, and gives its answer.
    """

    dataset = "hotpotqa"
    default_hops = 2


class TwoWikiMultihopQAEnv(QAEnv):
    """Answer the questions of 2WikiMultihopQA: bridges, comparisons, and comparisons over a bridge.

    ## Description
    HotpotQA-v0, whose page covers the rest, on the questions of 2WikiMultihopQA. Generated questions need 2 to 4
    articles: 4 of 10 are bridges, 4 comparisons (with 3 or 4 articles over a bridge), 2 yes or no.

    ## Rewards
    As in HotpotQA-v0. Aliases of answers count if `id_aliases.json` is beside the rows.

    ## Arguments
    `gym.make("AgentR1/TwoWikiMultihopQA-v0", split="train", data="generated", hops="2-4")`
    - As in HotpotQA-v0; `hops` is "2-4" by default, and the data is prepared with `agentr1 prepare 2wiki`.

    ## Data
    Generated: as in HotpotQA-v0. Official: 167,454 train and 12,576 validation questions (Ho et al. 2020,
    https://github.com/Alab-NII/2wikimultihop), Apache-2.0.
    """

    dataset = "2wiki"
    default_hops = "2-4"


class MuSiQueEnv(QAEnv):
    """Answer the questions of MuSiQue: bridges over two to four articles.

    ## Description
    HotpotQA-v0, whose page covers the rest, on the questions of MuSiQue. Generated questions are bridges over 2 to 4
    articles.

    ## Rewards
    As in HotpotQA-v0, with the rows' `answer_aliases`. `f1` is MuSiQue's own: "yes" and "no" are words like any others,
    and two texts that normalise to nothing score 1.

    ## Arguments
    `gym.make("AgentR1/MuSiQue-v0", split="train", data="generated", hops="2-4")`
    - As in HotpotQA-v0; `hops` is "2-4" by default, and the data is prepared with `agentr1 prepare musique`.

    ## Data
    Generated: as in HotpotQA-v0. Official: 19,938 train and 2,417 validation questions that have an answer (Trivedi et
    al. 2022, https://github.com/StonyBrookNLP/musique), CC BY 4.0.
    """

    dataset = "musique"
    default_hops = "2-4"
    answer_f1 = staticmethod(squad_f1)
