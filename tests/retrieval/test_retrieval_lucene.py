"""Against Lucene itself, through pyserini: `make lucene`.

1. The analyzer makes the same terms of real texts and of characters of every class.
2. On 20,000 generated documents the ids, their order and the scores of BM25Retriever are Lucene's, for every query.
3. LuceneRetriever keeps the contract of a retriever.
"""

import importlib.util
import json
import random
import threading

import pytest

from agent_envs.cli.main import main
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import table
from agent_envs.retrieval import BM25Retriever, LuceneRetriever, Retriever, open_retriever, read_corpus
from agent_envs.retrieval.analysis.analyzer import STOP_WORDS, analyze
from agent_envs.retrieval.lucene import load_pyserini

pytestmark = [
    pytest.mark.lucene,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(importlib.util.find_spec("pyserini") is None, reason="pyserini is not installed: make lucene"),
]
ENGINES = ["numpy", *["numba"] * (importlib.util.find_spec("numba") is not None)]


@pytest.fixture(scope="module")
def lucene_analyze():
    analysis = load_pyserini("pyserini.analysis")
    return analysis.Analyzer(analysis.get_lucene_analyzer()).analyze


def generated(count, seed=0):
    """Documents whose lengths, words and marks vary, with ids that strings order otherwise than numbers do."""
    rng = random.Random(seed)
    ends = ["", "s", "ing", "ed", "ational", "ly", "ness", "'s", "ies", "ization"]
    words = ["".join(rng.choices("bcdfglmnprst", k=1) + rng.choices("aeiouy", k=1)) for _ in range(40)]
    vocabulary = [*sorted(STOP_WORDS)[:10], *("".join(rng.choices(words, k=rng.randint(1, 3))) for _ in range(8000))]
    weights = [1 / (n + 2) for n in range(len(vocabulary))]
    marks = [" "] * 12 + [", ", ". ", "-", " (", ") ", "\n", " – ", "_", "; "]
    for number in range(count):
        text = ""
        for word in rng.choices(vocabulary, weights, k=int(rng.lognormvariate(3.7, 0.8))):
            text += (word.title() if rng.random() < 0.2 else word) + rng.choice(ends) + rng.choice(marks)
        yield {"id": str(number), "contents": text + rng.choice(["", " 1,234.5", " 東京 café", " e.g. U.S."])}


def test_real_texts_have_lucenes_terms(data_dir, lucene_analyze):
    rows = json.loads((data_dir / "hotpotqa" / "hotpot_train_distractor_100.json").read_text("utf-8"))
    texts = [row["question"] for row in rows]
    texts += [row["contents"] for row in read_corpus(data_dir / "hotpotqa" / "passages_open.jsonl")]
    assert len(texts) > 1000
    for text in texts:
        assert analyze(text) == list(lucene_analyze(text))


def test_every_class_of_characters_has_lucenes_terms(lucene_analyze):
    """One at the ends of each range, between letters, digits and spaces; and pairs of classes."""
    rng = random.Random(0)
    for name, entry in table("agent_envs.retrieval.analysis", "word_break.json").items():
        for end in " ".join(entry["ranges"]).replace("-", " ").split():
            c = chr(int(end, 16))
            text = f"{c} a{c} {c}b a{c}b 1{c}1 カ{c}カ {c}{c} א{c}א 一{c} x"
            assert analyze(text) == list(lucene_analyze(text)), (name, end)
    for _ in range(5000):
        text = "".join(rng.choice("aB1 _.,:;'\"sS9-éİΣ’·—ß東カ한ñ") for _ in range(rng.randint(2, 20)))
        assert analyze(text) == list(lucene_analyze(text)), text


def test_long_words_are_cut_as_lucene_does(lucene_analyze):
    long = ["x" * 255, "x" * 256, "x" * 1000 + " y", "ab_" * 200, "1,2" * 300, "é" * 600, "It's " * 100 + "z" * 300]
    for text in long:
        assert analyze(text) == list(lucene_analyze(text))


@pytest.fixture(scope="module")
def corpus():
    return list(generated(20_000))


@pytest.fixture(scope="module")
def lucene(corpus, tmp_path_factory):
    return LuceneRetriever.build(corpus, tmp_path_factory.mktemp("lucene") / "index")


@pytest.mark.parametrize("engine", ENGINES)
def test_bm25_is_lucenes(corpus, lucene, engine):
    index = BM25Retriever.build(corpus, engine=engine)
    rng = random.Random(1)
    differences = []
    for n in range(1000):
        words = rng.choice(corpus)["contents"].split()
        query = " ".join(rng.choices(words, k=rng.randint(1, 15))) if words else "a"
        k = rng.choice([1, 10, 10, 10, 100])
        expected, found = lucene.search(query, k), index.search(query, k)
        assert [i for i, _ in found] == [i for i, _ in expected], (n, query)
        differences += [abs(a - b) for (_, a), (_, b) in zip(found, expected, strict=True)]
    assert len(differences) > 10_000 and max(differences) < 1e-4


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.5, 1.0), (2.0, 0.0)])
def test_other_parameters(corpus, tmp_path, k1, b):
    some = corpus[:2000]
    lucene = LuceneRetriever.build(some, tmp_path / "lucene", k1, b)
    index = BM25Retriever.build(some, k1=k1, b=b)
    for row in some[:100]:
        query = row["contents"][:100]
        expected, found = lucene.search(query), index.search(query)
        assert [i for i, _ in found] == [i for i, _ in expected]
        assert [s for _, s in found] == pytest.approx([s for _, s in expected], abs=1e-4)


def test_the_contract(corpus, lucene, tmp_path):
    assert isinstance(lucene, Retriever) and len(lucene) == 20_000
    assert lucene.document("17") == corpus[17]
    with pytest.raises(ConfigError, match="nope"):
        lucene.document("nope")
    for query in ("", 'AND "', "+a -b:c~2^ *?[", "\x00\ud800", "x" * 100_000):
        assert len(lucene.search(query, 3)) <= 3
    with pytest.raises(ConfigError):
        lucene.search("a", 0)
    expected, found = lucene.search("e.g. café"), []
    threads = [threading.Thread(target=lambda: found.append(lucene.search("e.g. café"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 16
    (tmp_path / "rows.jsonl").write_text('{"id": 5, "title": "T", "text": "some words"}\n')
    arguments = ["index", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "index"), "--backend", "lucene"]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert main([*arguments, "--force"]) == 0
    opened = open_retriever(tmp_path / "index")
    assert opened.search("words")[0][0] == "5"
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "segments_1").write_bytes(b"no")
    with pytest.raises(DataError):
        LuceneRetriever(tmp_path / "broken")
