"""Queries and papers from files: every layout, what is broken in them, and what becomes of them.

1. Real rows of AutoScholarQuery, SPARBench and unarXive become tasks and corpora.
2. A broken row is named by file and line, with what was expected and what came.
3. Prepared data says the same as the files it was made from.
"""

import json
import pickle

import gymnasium as gym
import pytest

from agent_envs.cli.main import main
from agent_envs.datasets.papersearch.corpus import corpus_papers, data_papers
from agent_envs.datasets.papersearch.paper_files import bibliography_title, paper_rows, paper_source_files
from agent_envs.datasets.papersearch.rows import query_row, query_rows
from agent_envs.errors import DataError
from agent_envs.retrieval.papers import title_key, within_date
from agent_envs.retrieval.papers.paper import arxiv_id

ENV = "AgentR1/PaperSearch-v0"
ROW = {"question": "Which?", "answer": ["A", "B"], "answer_arxiv_id": ["2001.00001v2", "2001.00002"], "qid": "q"}
ROW |= {"source_meta": {"published_time": "20231024"}}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_real_autoscholar_rows(data_dir):
    path = data_dir / "papersearch" / "AutoScholarQuery_300.jsonl"
    rows = query_rows(str(path))
    assert len(rows) == 300 and rows.split == "all" and rows.name == str(path)
    assert rows[0].ids == ("2009.02040",) and rows[0].date == "2023-10-24"
    assert rows[0].query_id == "AutoScholarQuery_test_0" and rows[299].task_id == "papersearch/all/299"
    assert all(len(task.titles) == len(task.ids) and all(map(arxiv_id, task.ids)) for task in rows)
    assert pickle.loads(pickle.dumps(rows))[7] == rows[7]


def test_real_spar_rows(data_dir):
    path = data_dir / "papersearch" / "spar_bench_15.jsonl"
    rows = query_rows(str(path))
    assert len(rows) == 15 and {task.date for task in rows} == {"2025-03-20"}
    assert sum(len(task.titles) for task in rows) == 165  # one answer is there twice
    papers = list(paper_rows([path]))
    assert len({title_key(row.paper.title) for row in papers}) == len(papers) == 157
    assert sum(bool(row.paper.abstract) for row in papers) == 157
    golds = {title_key(title) for task in rows for title in task.titles}
    assert golds == {title_key(row.paper.title) for row in papers}
    assert sum(bool(arxiv_id(row.paper.id)) for row in papers) > 120
    assert all(within_date(row.paper.date, "2025-03-20") for row in papers)


@pytest.mark.parametrize("name", ["AutoScholarQuery_300.jsonl", "spar_bench_15.jsonl"])
def test_every_answer_of_real_rows_is_found_in_their_own_papers(data_dir, name):
    path = str(data_dir / "papersearch" / name)
    env = gym.make(ENV, data=path, top_k=50)
    late = 0
    for index in range(15):
        observation, info = env.reset(options={"index": index})
        task = env.unwrapped.task
        assert observation == task.query and info["source"] == path and info["split"] == "all"
        papers = {row.paper.title: row.paper for row in paper_rows([data_dir / "papersearch" / name])}
        late += sum(not within_date(papers[title].date, task.date) for title in task.titles if title in papers)
        for begin in range(0, len(task.titles), 5):
            calls = [{"name": "search", "arguments": {"query": title}} for title in task.titles[begin : begin + 5]]
            _, _, over, _, info = env.step("".join(f"<tool_call>{json.dumps(c)}</tool_call>" for c in calls))
            if begin >= 20 or over:
                break
        if len(task.titles) <= 25:
            assert info["metrics"]["recall"] == 1.0 == info["metrics"]["precision"], task.query
    assert late == 0 and env.unwrapped.expert_action() is None


@pytest.mark.parametrize(
    ("change", "titles", "ids"),
    [
        ({}, ("A", "B"), ("2001.00001", "2001.00002")),
        ({"answer": ["A", "a!"]}, ("A",), ("2001.00001",)),  # the same letters: one paper
        ({"answer_arxiv_id": []}, ("A", "B"), ()),
        ({"answer_arxiv_id": None}, ("A", "B"), ()),
        ({"answer_arxiv_id": ["2001.00001", "2001.00001v2", "x"]}, ("A", "B"), ("2001.00001", "x")),
        ({"answer": ["A\n  B", "C"]}, ("A B", "C"), ("2001.00001", "2001.00002")),
        ({"answer": ["", "C"]}, ("C",), ("2001.00002",)),
    ],
)
def test_answers(change, titles, ids):
    task = query_row({**ROW, **change}, "here").task
    assert (task.titles, task.ids) == (titles, ids)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected an object with a question"),
        ({**ROW, "question": " "}, "expected text under 'question'"),
        ({**ROW, "question": 3}, "expected text under 'question', got 3"),
        ({**ROW, "answer": []}, "no answers"),
        ({**ROW, "answer": None}, "no answers"),
        ({**ROW, "answer": "A"}, "a list under 'answer', got 'A'"),
        ({**ROW, "answer": [3]}, "a list of strings under 'answer', got 3"),
        ({**ROW, "answer_arxiv_id": [2001.00001]}, "a list of strings under 'answer_arxiv_id'"),
        ({**ROW, "source_meta": []}, "an object under 'source_meta'"),
        ({**ROW, "source_meta": {"published_time": "soon"}}, "published_time: expected a date"),
        ({**ROW, "source_meta": {"answers": [3]}}, "an object under 'answers'"),
        ({**ROW, "source_meta": {"answers": [{"title": None}]}}, "title of an answer"),
        ({**ROW, "source_meta": {"answers": [{"title": "A", "abstract": 3}]}}, "abstract of 'A'"),
        ({**ROW, "source_meta": {"answers": [{"title": "A", "year": "now"}]}}, "year of 'A'"),
        ({**ROW, "source_meta": {"answers": [{"title": "A", "paperID": []}]}}, "paperID of 'A'"),
        ({"prompt": [], "extra_info": {"index": 0}}, "'question', got None"),
    ],
)
def test_broken_queries_are_named(tmp_path, row, said):
    path = write(tmp_path / "rows.jsonl", ROW, row)
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2") as e:
        query_rows(str(path))
    assert said in str(e.value)


def test_a_folder_is_a_split_and_its_rows_may_be_an_array(tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "part.json").write_text(json.dumps([ROW] * 3))
    assert len(query_rows(str(tmp_path), "test")) == 3


def test_real_unarxive_papers(data_dir):
    path = data_dir / "papersearch" / "unarxive_15.jsonl"
    rows = list(paper_rows([path]))
    raw = [json.loads(line) for line in path.read_text().splitlines()]
    full, works = rows[:15], rows[15:]
    assert [row.paper.id for row in full] == [row["paper_id"] for row in raw]
    assert full[0].paper.date == "2022-12-22" and full[0].paper.abstract.startswith("Let $X_1,X_2")
    title = "Zeros of a growing number of derivatives of random polynomials with independent roots"
    assert full[0].paper.title == title
    assert [len(row.references) for row in full] == [len(row["bib_entries"]) for row in raw]
    assert sum(bool(arxiv_id(row.paper.id)) for row in works) >= 40
    assert sum(row.paper.id.startswith("doi:") for row in works) > 50
    # what the text cites first comes first
    first = next(span["ref_id"] for part in raw[0]["body_text"] for span in part["cite_spans"])
    entry = raw[0]["bib_entries"][first]
    assert full[0].references[0] == entry["ids"]["arxiv_id"] == "1109.5975"
    papers = corpus_papers(path)
    found = papers.expand("2212.11867")
    assert len(found) == 17 and [paper.id for paper in papers.expand("1109.5975")] == ["2212.11867"]
    assert "The distribution of zeros of the derivative of a random polynomial" in {paper.title for paper in found}
    # most entries have a title; those in styles without one keep their text
    assert sum(len(row.paper.title) < 130 for row in works) > 0.8 * len(works)


@pytest.mark.parametrize(
    ("raw", "title"),
    [
        ("Thorp, J. M., & Waring, W. S. (1962). Modification of metabolism by ethyl. Nature 194.",
         "Modification of metabolism by ethyl"),
        ("Mohit Iyyer, John Wieting, and Luke Zettlemoyer. Adversarial example generation. arXiv preprint.",
         "Adversarial example generation"),
        ("S. Bravyi, D. Gosset, and R. Movassagh, Classical algorithms for means, Nature Physics 17, 337 (2021).",
         "Classical algorithms for means"),
        ("J.~Jiao and H.~Ye, ``Robust odometry and mapping,'' IEEE Transactions, 2020.", "Robust odometry and mapping"),
        ("Q. Wu and T. V. Voorhis, The Journal of Chemical Physics 125, 164105 (2006b).",
         "Q. Wu and T. V. Voorhis, The Journal of Chemical Physics 125, 164105 (2006b)."),
        ("Gibson, N. P. 2022, , 512, 4618, doi: 10.1093/x", "Gibson, N. P. 2022, , 512, 4618, doi: 10.1093/x"),
        ("", ""),
        ("{" * 5000, "{" * 300),
    ],
)  # fmt: skip
def test_titles_in_bibliographies(raw, title):
    assert bibliography_title(raw) == title


UNARXIVE = {
    "paper_id": "2001.00001",
    "metadata": {"title": "Own", "abstract": "About.", "versions": [{"created": "Thu, 22 Dec 2022 17:01:56 GMT"}]},
    "body_text": [{"cite_spans": [{"ref_id": "b"}, {"ref_id": "gone"}]}],
    "bib_entries": {
        "a": {"bib_entry_raw": "A. Man. A title of a work. 1999.", "ids": {"arxiv_id": "", "doi": "10.1/X"}},
        "b": {"bib_entry_raw": "B. Man. Another title of a work. 1998.", "contained_arXiv_ids": [{"id": "9901.00001"}]},
        "c": {"bib_entry_raw": "C. Man. The own title once more. 2001.", "ids": {"arxiv_id": "2001.00001v3"}},
        "d": {"bib_entry_raw": " "},
    },
}


def test_edges_of_unarxive(tmp_path):
    full = {"id": "doi:10.1/x", "title": "Known in full", "abstract": "Yes."}
    rows = list(paper_rows([write(tmp_path / "a.jsonl", UNARXIVE), write(tmp_path / "b.jsonl", full)]))
    assert [row.paper.id for row in rows] == ["2001.00001", "doi:10.1/x", "9901.00001"]
    assert rows[0].references == ("9901.00001", "doi:10.1/x")  # cited in the text first; not itself; not the empty one
    assert rows[1].paper.title == "Known in full" and rows[2].paper.title == "Another title of a work"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"paper_id": None}, "paper_id"),
        ({"metadata": {}}, "title in 'metadata'"),
        ({"metadata": None}, "title in 'metadata'"),
        ({"bib_entries": []}, "bib_entries"),
        ({"body_text": None}, "body_text"),
        ({"body_text": ["x"]}, "cite_spans"),
        ({"body_text": [{"cite_spans": [{}]}]}, "ref_id"),
        ({"bib_entries": {"a": 3}}, "bib_entry_raw"),
        ({"bib_entries": {"a": {"bib_entry_raw": "x", "ids": []}}}, None),
        ({"bib_entries": {"a": {"bib_entry_raw": "x", "ids": "y"}}}, "expected ids"),
    ],
)
def test_broken_unarxive_papers_are_named(tmp_path, change, said):
    path = write(tmp_path / "a.jsonl", {**UNARXIVE, **change})
    if said is None:
        assert len(list(paper_rows([path]))) == 2
        return
    with pytest.raises(DataError, match=r"a\.jsonl, line 1") as e:
        list(paper_rows([path]))
    assert said in str(e.value)


def test_other_rows_are_no_papers(tmp_path):
    for row in ("3", "{}", '{"id": "a"}', '{"id": "a", "title": 3}'):
        with pytest.raises(DataError, match=r"a\.jsonl"):
            list(paper_rows([write(tmp_path / "a.jsonl", row)]))
    with pytest.raises(DataError, match="there are no papers at"):
        paper_source_files(tmp_path / "none")
    with pytest.raises(DataError, match="there are no papers"):
        data_papers(str(write(tmp_path / "rows.jsonl", {**ROW, "answer_arxiv_id": []})))


def test_papers_beside_a_file_of_queries(tmp_path):
    rows = write(tmp_path / "rows.jsonl", ROW)
    alone = len(data_papers(str(rows)))
    write(tmp_path / "other.jsonl", {"id": "o", "title": "Not asked for"})
    assert len(data_papers(str(rows))) == alone
    (tmp_path / "papers").mkdir()
    write(tmp_path / "papers" / "papers.jsonl", {"id": "x", "title": "Beside", "references": ["y"]})
    write(tmp_path / "papers.jsonl", {"id": "y", "title": "Beside, too"})
    papers = data_papers(str(rows))
    assert len(papers) == alone + 2 and [paper.id for paper in papers.expand("y")] == ["x"]


def test_halves_of_characters_can_be_prepared(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    row = json.dumps({**ROW, "question": "What? \ud800", "answer": ["B", "Half \udfff a title"], "qid": "\ud801"})
    path = write(tmp_path / "train.jsonl", row)
    assert main(["prepare", "papersearch", "--from", str(path), "--out", str(tmp_path / "out")]) == 0
    task = query_rows(str(tmp_path / "out"))[0]
    assert task.query == "What? \ufffd" == query_rows(str(path))[0].query
    assert task.titles == ("B", "Half \ufffd a title")


@pytest.fixture
def released(tmp_path, data_dir):
    """A folder as someone would download it."""
    folder = tmp_path / "released"
    folder.mkdir()
    for name, source in {
        "AutoScholarQuery_test": "AutoScholarQuery_300", "spar": "spar_bench_15", "unarxive": "unarxive_15"
    }.items():  # fmt: skip
        (folder / f"{name}.jsonl").write_bytes((data_dir / "papersearch" / f"{source}.jsonl").read_bytes())
    (folder / "replies").mkdir()
    reply = {"url": "http://x/search", "status_code": 200, "body": "[]"}
    (folder / "replies" / "one.json").write_text(json.dumps(reply, indent=1))
    (folder / "replies" / "backend.json").write_text('{"backend": "http://x"}')
    return folder


def test_prepare(released, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))
    assert main(["prepare", "papersearch", "--from", str(released)]) == 0
    folder = tmp_path / "data" / "papersearch"
    assert capsys.readouterr().out.strip() == str(folder)
    assert {path.name for path in folder.iterdir()} == {"test.jsonl", "spar.jsonl", "papers.jsonl", "index"}
    prepared = query_rows("official", "test")
    assert len(prepared) == 300
    for before, after in zip(query_rows(str(released / "AutoScholarQuery_test.jsonl")), prepared, strict=True):
        assert (before.query, before.titles, before.ids, before.date, before.query_id) == (
            after.query, after.titles, after.ids, after.date, after.query_id
        )  # fmt: skip
    papers = data_papers("official")
    assert len(papers) == len({row.paper.id for row in paper_rows(paper_source_files(released))})
    assert len(papers) == len(corpus_papers(folder / "papers.jsonl"))
    env = gym.make(ENV, data="official", split="spar")
    env.reset(options={"index": 3})
    _, _, _, _, info = env.step('<tool_call>{"name": "search", "arguments": {"query": "Swin Transformer"}}</tool_call>')
    assert info["source"] == "official" and info["task_id"] == "papersearch/spar/3"
    assert main(["prepare", "papersearch", "--from", str(released)]) == 0  # again: in its place


def test_prepare_fetches(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets", minversion="2.0")
    asked = []

    def load(name, config, revision, data_files):
        asked.append((name, config, data_files))
        return {"train": [ROW, ROW], "real": [{**ROW, "question": "What?"}]}

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert main(["prepare", "papersearch", "--out", str(tmp_path / "out")]) == 0
    assert asked[0][0] == "CarlanLark/pasa-dataset" and asked[0][2]["test"] == "AutoScholarQuery/test.jsonl"
    names = {"train.jsonl", "real.jsonl", "papers.jsonl", "index"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert query_rows(str(tmp_path / "out"), "real")[0].query == "What?"
    assert len(data_papers(str(tmp_path / "out"))) == 2

    def gated(name, config, revision, data_files):
        raise OSError("gated: accept the terms")

    monkeypatch.setattr(datasets, "load_dataset", gated)
    assert main(["prepare", "papersearch", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "gated" in error and "agentr1 prepare papersearch --from PATH" in error
    assert query_rows(str(tmp_path / "out"), "real")[0].query == "What?"


def test_prepare_says_what_is_wrong(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))
    assert main(["prepare", "papersearch", "--from", str(tmp_path / "none")]) == 2
    write(tmp_path / "papers.jsonl", {"id": "a", "title": "A"})
    assert main(["prepare", "papersearch", "--from", str(tmp_path / "papers.jsonl")]) == 2
    assert "no queries" in capsys.readouterr().err
    write(tmp_path / "rows.jsonl", ROW, {**ROW, "answer": 3})
    assert main(["prepare", "papersearch", "--from", str(tmp_path / "rows.jsonl")]) == 2
    assert "rows.jsonl, line 2" in capsys.readouterr().err
    assert not (tmp_path / "data" / "papersearch").exists()
