"""The generated encyclopaedia and its questions.

1. Articles tell every fact of their subject and no other, in varied words; titles are unique, names overlap.
2. Facts agree with each other, and what an inverse leads to leads back.
3. Splits share no name, no word of a name and no question.
4. A question's supporting articles answer it, and without any one of them they do not.
5. No question gives its answer away, and no one answer is worth giving always.
"""

import collections
import itertools
import re
import time
from pathlib import Path

import pytest

from agent_envs.datasets.qa.corpus import generated_retriever
from agent_envs.datasets.qa.generated.articles import article_about, article_at, article_rows
from agent_envs.datasets.qa.generated.encyclopaedia import World, encyclopaedia
from agent_envs.datasets.qa.generated.names import spell
from agent_envs.datasets.qa.generated.questions import GeneratedQA
from agent_envs.datasets.qa.generated.relations import KINDS, RELATIONS, RELATIONS_OF
from agent_envs.envs.qa.reader import Mention, find_article, parse_question, read_fact, solve
from agent_envs.errors import ConfigError
from agent_envs.rewards.short_answers import exact_match

SPLITS = ("train", "validation", "test")


@pytest.mark.parametrize("split", SPLITS)
def test_articles_tell_every_fact_and_nothing_else(split: str) -> None:
    world = World(split, 200)
    for kind, count in world.counts.items():
        for number in range(count):
            article = article_about(world, kind, number)
            for relation in RELATIONS_OF[kind]:
                read = read_fact(relation.name, article.text)
                if not world.has(relation, number):
                    assert read is None, (relation.name, article.text)
                    continue
                answer, aliases = world.answer(relation, number)
                assert read is not None, (relation.name, article.text)
                assert exact_match(read.name, (answer, *aliases)) == 1.0, (relation.name, read, article.text)
                if relation.target in KINDS:  # what the article names is found under that name
                    target = world.target(relation.name, kind, number)
                    page = article_about(world, relation.target, target)
                    assert find_article(read, {page.title: page.text}) == page.title


@pytest.mark.parametrize("split", SPLITS)
def test_titles_are_unique_and_names_overlap(split: str) -> None:
    world = World(split, 1000)
    articles = [article_at(world, index) for index in range(1000)]
    assert len({a.title for a in articles}) == len({a.id for a in articles}) == 1000
    names = collections.Counter(a.title.partition(" (")[0] for a in articles)
    assert 20 <= sum(count == 2 for count in names.values()) <= 100  # namesakes, told apart by what is in brackets
    assert max(names.values()) == 2
    words = collections.Counter(word for a in articles for word in set(re.findall(r"[A-Z]\w+", a.title)))
    assert sum(count >= 5 for count in words.values()) >= 60  # words that five or more titles share
    known = set(names)
    aliases = [x for kind, count in world.counts.items() for n in range(count) for x in world.thing(kind, n).aliases]
    assert len(aliases) == len(set(aliases)) > 50
    assert not known & set(aliases)


def test_facts_agree() -> None:
    world = World("test", 2000)
    for number in world.halves("person", 1):
        assert world.birth(world.target("teacher", "person", number)) < world.birth(number)
    for number in range(world.counts["novel"]):
        year = world.value("published", "novel", number)[0]
        assert year > world.birth(world.target("author", "novel", number))[0] + 20
        assert year > world.value("established", "company", world.target("publisher", "novel", number))[0]
    for number in range(world.counts["film"]):
        novel = world.target("adapted", "film", number)
        assert world.value("released", "film", number) > world.value("published", "novel", novel)
    for relation in RELATIONS:
        if relation.target not in KINDS:
            continue
        for number in world.halves(relation.source, relation.source_half)[:50]:
            target = world.target(relation.name, relation.source, number)
            assert number in world.sources(relation.name, relation.source, target)


def test_names_of_all_splits_begin_and_end_alike() -> None:
    for part, count in ((r"^[^aeiou]+", 26), (r"[aeiou]+[^aeiou]+$", 60)):
        parts = [
            {re.findall(part, spell(n, split).lower())[0] for n in (*range(300), *range(82_000, 82_300))}
            for split in range(3)
        ]
        assert parts[0] == parts[1] == parts[2] and len(parts[0]) == count


def test_splits_share_no_word_of_a_name_and_no_question() -> None:
    words, questions = [], []
    for split in SPLITS:
        world = World(split, 1000)
        titles = [article_at(world, index).title for index in range(1000)]
        english = {word for kind in KINDS.values() for form in (*kind.shapes, *kind.words) for word in form.split()}
        words.append({w for title in titles for w in re.findall(r"[A-Z]\w+", title)} - english)
        tasks = GeneratedQA("hotpotqa", split, "2-4", 1000)
        questions.append({tasks[index].question for index in range(150)})
    for some in (words, questions):
        for one, other in itertools.combinations(some, 2):
            assert not one & other


@pytest.mark.parametrize(
    ("dataset", "hops"), [("hotpotqa", 2), ("hotpotqa", 3), ("hotpotqa", 4), ("2wiki", 3), ("musique", 4)]
)
def test_every_supporting_article_is_needed_and_they_are_enough(dataset: str, hops: int) -> None:
    tasks = GeneratedQA(dataset, "train", hops, 200)
    pages = {a.title: a.text for a in (article_at(tasks.world, index) for index in range(200))}
    seen: collections.Counter[str] = collections.Counter()
    for index in range(30):
        task = tasks[index]
        seen[task.question_type] += 1
        assert len(task.supporting) == len(set(task.supporting)) == task.hops == hops
        plan = parse_question(task.question)
        assert plan is not None, task.question
        support = {title: pages[title] for title in task.supporting}
        answer = solve(plan, support)
        assert isinstance(answer, str)
        assert exact_match(answer, task.answers) == 1.0, (task, answer)
        for title in support:
            without = {other: text for other, text in pages.items() if other != title}
            assert not isinstance(solve(plan, without), str), (task, title)  # not even with all the rest
    assert set(seen) == ({"bridge"} if dataset == "musique" else {"bridge", "comparison", "yesno"})


def test_questions_do_not_give_their_answers_away() -> None:
    answers: collections.Counter[str] = collections.Counter()
    said: collections.Counter[str] = collections.Counter()
    for hops in (2, 3, 4):
        tasks = GeneratedQA("hotpotqa", "train", hops, 1000)
        for index in range(300):
            task = tasks[index]
            if task.question_type == "bridge":
                answers[task.answers[0]] += 1
                assert not any(answer in task.question for answer in task.answers)
            elif task.question_type == "yesno":
                said[task.answers[0]] += 1
    assert answers.most_common(1)[0][1] < 0.015 * answers.total()  # the best answer to give always
    assert 0.4 < said["yes"] / said.total() < 0.6


def test_a_thousand_articles_are_made_and_indexed_within_a_second() -> None:
    generated_retriever(World("train", 200))  # what is loaded once
    begin = time.process_time()
    retriever = generated_retriever(World("train", 1001))
    assert time.process_time() - begin < 1.0
    assert retriever is generated_retriever(World("train", 1001))  # once per process


def test_a_large_world_is_streamed_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    monkeypatch.setattr("agent_envs.datasets.qa.corpus.ARTICLES_IN_MEMORY", 500)
    world = World("validation", 1511)
    retriever = generated_retriever(world)
    (folder,) = (tmp_path / "indexes").iterdir()
    assert folder.name == "encyclopaedia-2-validation-1511"
    article = article_at(world, 700)
    assert retriever.document(article.id) == {"id": article.id, "title": article.title, "text": article.text}
    first = next(article_rows(World("train", 5_000_000)))  # nothing is made before it is asked for
    assert first["id"] == "0000000"


def test_what_does_not_exist_is_refused() -> None:
    for articles in (199, 5_000_001, True):  # others: tests/envs/test_wrong_arguments.py
        with pytest.raises(ConfigError, match="from 200 to 5000000"):
            World("train", articles)
    assert [len(GeneratedQA("hotpotqa", split, 2, 200)) for split in SPLITS] == [100_000, 1_000, 1_000]
    with pytest.raises(IndexError):
        article_at(encyclopaedia("test", 1000), 1000)


@pytest.mark.parametrize(
    "question",
    ["", "Who?", "Which magazine was started first Arthur's Magazine or First for Women?", "Who wrote the ?",
     "x" * 10**6, "Who taught " + "the person who taught " * 80 + "Tadan Rirek?"],
)  # fmt: skip
def test_other_questions_are_not_read(question: str) -> None:
    plan = parse_question(question)
    assert plan is None or len(plan.sides[0].facts) > 4


def test_namesakes_are_told_apart() -> None:
    pages = {"Rubox (novel)": "Rubox is a novel.", "Rubox (film)": "Rubox is a film.", "Suful": "Suful is a town."}
    assert find_article(Mention("Rubox", "film"), pages) == "Rubox (film)"
    assert find_article(Mention("the Suful"), pages) == "Suful"
    assert find_article(Mention("Suful", "town"), pages) == "Suful"
    assert find_article(Mention("Pigam"), pages) is None
