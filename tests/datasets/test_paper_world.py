"""The generated literature and its queries.

1. random access, the same for ever; splits share no invented word, no title and no query
2. every query: 2 to 30 papers, none later than its day, each of them reachable from what a search finds
3. `hidden` papers: lexical search does not find them, expansion does; the share is as asked for
4. the expert's recall is at least 0.9, a policy that only searches stays clearly below
5. sizes: 100 papers, a million streamed; as files
"""

import dataclasses
import itertools
import json
import re
import time

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401
from agent_envs.datasets.papersearch.corpus import corpus_papers, generated_papers
from agent_envs.datasets.papersearch.generated.literature import HIDDEN, WORDS, Literature, literature
from agent_envs.datasets.papersearch.generated.queries import GeneratedQueries
from agent_envs.envs.papersearch.expert import parse_query
from agent_envs.errors import DataError
from agent_envs.retrieval.papers import title_key
from agent_envs.retrieval.papers.local import LocalPapers
from agent_envs.retrieval.papers.paper import paper_row, read_papers

SPLITS = ("train", "validation", "test")
ENGLISH = set(re.findall(r"[a-z]+", " ".join(map(str, WORDS.values())).lower()))


def test_papers_and_queries_are_functions_of_their_numbers():
    one, other = Literature("test", 500), Literature("test", 500)
    rows = list(one.rows())
    assert rows[137] == other.row(137) and rows == list(other.rows()) and len(rows) == 500
    assert GeneratedQueries("test", 500)[321] == GeneratedQueries("test", 500, 0.4)[321]
    for number in (-1, 500):
        with pytest.raises(IndexError):
            one.row(number)


def test_splits_are_disjoint():
    words, titles, queries = [], [], []
    for split in SPLITS:
        rows, tasks = list(Literature(split, 400).rows()), GeneratedQueries(split, 400)
        text = " ".join(f"{row.paper.title} {row.paper.abstract}" for row in rows).lower()
        words.append(set(re.findall(r"[a-z]+", text)) - ENGLISH)
        titles.append({title_key(row.paper.title) for row in rows})
        queries.append({task.query for task in itertools.islice(tasks, 300)})
        assert len(words[-1]) > 400 and len(titles[-1]) == 400  # no two titles are the same
        assert len(tasks) == GeneratedQueries.sizes[split]
    for kinds in (words, titles, queries):
        assert all(not a & b for a, b in itertools.combinations(kinds, 2))


@pytest.mark.parametrize(("papers", "hidden"), [(100, 0.6), (101, 0.0), (2000, 0.4), (2000, 0.6)])
def test_every_query_can_be_answered(papers, hidden):
    """From the plain papers that the query names, following edges between its answers alone."""
    world = literature("validation", papers, hidden)
    number = {world.paper_id(n): n for n in range(papers)}
    for task in itertools.islice(GeneratedQueries("validation", papers, hidden), 300):
        gold = [world.planned(number[i]) for i in task.ids]
        assert 2 <= len(gold) <= 30 and len(set(task.ids)) == len(gold)
        assert task.titles == tuple(paper.title for paper in gold)
        assert max(world.row(paper.number).paper.date for paper in gold) <= task.date
        kind, named = parse_query(task.query)
        assert kind == task.query_type
        names = [named.get("x") or named["a"], *([named["b"]] if "b" in named else [])]
        reached = {p.number for p in gold if any(name.lower() in p.title.lower() for name in names)}
        assert reached
        among, fresh = {p.number: p for p in gold}, list(reached)
        while fresh:
            paper = among[fresh.pop()]
            near = {n for n in (*paper.references, *paper.citations) if n in among} - reached
            reached |= near
            fresh += near
        assert reached == set(among), task


def test_queries_are_complete():
    """Nothing else of the literature answers them: what the words say decides."""
    world = literature("test", 2000)
    planned = [world.planned(n) for n in range(2000)]
    for task in itertools.islice(GeneratedQueries("test"), 300):
        kind, named = parse_query(task.query)
        if kind == "followups":
            first = next(p for p in planned if p.method == named["x"])
            wanted = {first.number, *first.citations}
        else:
            topics = [t for t in map(world.topic, range(world.topics)) if t.name in (named["a"], named.get("b"))]
            assert len(topics) == len(named) - ("s" in named)
            wanted = {p.number for t in topics for p in t.papers if "s" not in named or p.setting == named["s"]}
        days = {n: world.row(n).paper.date for n in wanted}
        assert {world.paper_id(n) for n, day in days.items() if day <= task.date} == set(task.ids)


def test_hidden_papers_share_no_invented_word_with_their_topic():
    world = literature("train", 2000)
    for number in range(2000):
        paper, topic = world.planned(number), world.topic_of(number)
        if paper.kind == HIDDEN:
            row = world.row(number)
            own = {paper.method.lower()}
            assert set(re.findall(r"[a-z]+", f"{row.paper.title} {row.paper.abstract}".lower())) - ENGLISH == own
            others = " ".join(f"{r.paper.title} {r.paper.abstract}" for r in map(world.row, (
                p.number for p in topic.papers if p is not paper)))  # fmt: skip
            assert not re.search(rf"\b{paper.method}\b", others)  # and no other paper gives it away


def test_expansion_finds_what_search_does_not():
    world, papers = literature("test", 2000), generated_papers(literature("test", 2000))
    for topic in map(world.topic, range(40)):
        hidden = {world.paper_id(p.number) for p in topic.papers if p.kind == HIDDEN}
        found = {p.id for name in (topic.name, topic.other_name) for p in papers.search(name, 10)}
        assert not hidden & found
        expanded = {p.id for i in found for p in papers.expand(i)}
        assert hidden <= expanded | {p.id for i in expanded for p in papers.expand(i)}


def recall(env, index, act):
    env.reset(options={"index": index})
    while True:
        action = act(env.unwrapped)
        *_, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return info["metrics"]["recall"]


def search_only(env):
    """Searches for everything that the expert would search for, and for more, and expands nothing."""
    state = env.state
    _, named = parse_query(env.task.query)
    names = [named[slot] for slot in ("a", "b", "x") if slot in named]
    texts = " ".join(pooled.paper.abstract for pooled in state.pool.values())
    names += re.findall(r"(?:speak of|known as|called|others call|communities:) ([a-z ]+?)[.,)]", texts)
    ends = ["", *([named["s"]] if "s" in named else []), "survey", *WORDS["settings"][state.turns * 4 :]]
    queries = [f"{name} {end}".strip() for end in ends for name in dict.fromkeys(names)]
    fresh = [query for query in queries if query.lower() not in state.searched][:5]
    return "\n".join(env.format_call("search", {"query": query}) for query in fresh) or "Done."


def test_the_expert_and_a_policy_that_only_searches():
    env = gym.make("AgentR1/PaperSearch-v0", split="validation")
    expert = [recall(env, index, lambda e: e.expert_action()) for index in range(20)]
    searching = [recall(env, index, search_only) for index in range(20)]
    assert min(expert) >= 0.9 and sum(expert) / 20 >= 0.97
    assert sum(searching) / 20 <= 0.75


def test_the_expert_reads_only_what_was_shown():
    """With other abstracts it does other things; with the same it does the same, whatever the answers are."""
    env = gym.make("AgentR1/PaperSearch-v0", split="test").unwrapped
    env.reset(options={"index": 3})
    env.step(env.expert_action())
    before = env.expert_action()
    env._task = dataclasses.replace(env.task, titles=("Something else",))  # a copy: other tests play the task as well
    assert env.expert_action() == before


def test_the_default_takes_less_than_a_second():
    begin = time.process_time()
    LocalPapers.build(Literature("train", 2000).rows())
    assert time.process_time() - begin < 1


def test_a_million_papers_stream():
    world = Literature("train", 1_000_000)
    begin = time.process_time()
    rows = list(itertools.islice(world.rows(), 2000))
    assert time.process_time() - begin < 2 and len({row.paper.id for row in rows}) == 2000
    assert world.row(999_999).paper.title and GeneratedQueries("train", 1_000_000)[99_999].titles


def test_files_are_what_is_played(tmp_path, released_files):
    folder = released_files.write_literature(tmp_path / "out", 50, "test", 300)
    world, rows = literature("test", 300), list(read_papers(folder / "papers" / "papers.jsonl"))
    assert rows == list(world.rows())
    first = json.loads((folder / "test.jsonl").read_text(encoding="utf-8").splitlines()[0])
    task = GeneratedQueries("test", 300)[0]
    assert first["question"] == task.query and tuple(first["answer"]) == task.titles
    papers, made = corpus_papers(folder / "papers" / "papers.jsonl"), generated_papers(world)
    for row in rows[:40]:
        assert papers.expand(row.paper.id) == made.expand(row.paper.id)
        assert {p.id for p in made.expand(row.paper.id)} == {*row.references, *row.citations}
    assert papers.search("legal text", 20, task.date) == made.search("legal text", 20, task.date)
    env = gym.make("AgentR1/PaperSearch-v0", data=str(folder), split="test").unwrapped
    same = gym.make("AgentR1/PaperSearch-v0", split="test", papers=300).unwrapped
    assert env.reset(options={"index": 7})[0] == same.reset(options={"index": 7})[0] and env.num_tasks == 50
    action = same.expert_action()
    assert env.step(action)[:2] == same.step(action)[:2] and env.expert_action() is None


def test_a_corpus_is_built_once_and_opened_by_all(tmp_path, monkeypatch):
    from agent_envs.datasets.papersearch import corpus as papers_corpus

    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    monkeypatch.setattr(papers_corpus, "PAPERS_IN_MEMORY", 100)
    world = literature("validation", 321)
    papers = generated_papers(world)
    assert papers.path == tmp_path / "indexes" / world.name and papers is generated_papers(world)
    monkeypatch.setattr(LocalPapers, "build", None)
    papers_corpus.opened.clear()
    again = generated_papers(world)
    assert again is not papers and again.search("survey") == papers.search("survey")
    assert corpus_papers(papers.path).expand("p000") == papers.expand("p000")
    (papers.path / "graph.papers").write_bytes(b"short")
    with pytest.raises(DataError, match="graph.papers has 5 bytes"):
        LocalPapers(papers.path)


def test_the_time_filter_looks_further_down():
    rows = [paper_row({"id": f"{n:03d}", "title": "Graph", "date": str(1900 + n)}, n) for n in range(150)]
    papers = LocalPapers.build(rows)
    found = papers.search("graph", 10, before="1912-05")
    assert [paper.date for paper in found] == [str(1900 + n) for n in range(10)]
    assert len(papers.search("graph", 20, before="1912")) == 13
    assert papers.search("graph", 3, before="1899") == [] and len(papers.search("graph", 200)) == 150
    assert papers.search("", 5) == papers.search("the", 5) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: expected an object"),
        ('{"id": "x"}', "line 2: 'title' must be a string"),
        ('{"title": "x"}', "line 2: 'id'"),
        ('{"id": "x", "title": "x", "abstract": 3}', "line 2: 'abstract'"),
        ('{"id": "x", "title": "x", "date": "soon"}', "line 2: expected a date"),
        ('{"id": "x", "title": "x", "references": "y"}', "line 2: 'references' must be a list"),
        ('{"id": "x", "title": "x", "citations": [null]}', "line 2: 'citations' must be a list"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, line, said):
    path = tmp_path / "papers.jsonl"
    path.write_text('{"id": "a", "title": "A"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=said):
        list(read_papers(path))
    with pytest.raises(DataError, match="papers.jsonl, line 2: "):
        corpus_papers(path)
