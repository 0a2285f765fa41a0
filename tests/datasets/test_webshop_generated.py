"""The generated shop and the shoppers: every wish can be met, and is met by who reads the pages.

1. A catalogue is a function of its seed and nothing else, read in any order; written to files it is the same.
2. Near-duplicates differ in one attribute or one value of an option.
3. The product that a goal was made from is worth 1.0, whatever else is.
4. The expert buys for full marks nearly always, a random clicker nearly never; the expert recovers from strays and
   goes on from any snapshot.
"""

import itertools
import json

import pytest

import agent_envs
from agent_envs.datasets import download as downloads
from agent_envs.datasets import prepare
from agent_envs.datasets.webshop import catalog as webshop_catalog
from agent_envs.datasets.webshop.catalog import open_catalog
from agent_envs.datasets.webshop.generated.shop import GeneratedShop
from agent_envs.envs.webshop.expert import choose_options
from agent_envs.envs.webshop.nouns import open_tagger
from agent_envs.envs.webshop.reward import purchase_reward
from agent_envs.errors import DataError

ID = "AgentR1/WebShop-v0"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder of this module's own."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(cache, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(cache))


def test_products_are_read_in_any_order():
    whole = list(GeneratedShop(400))
    shop = GeneratedShop(400)
    for number in (399, 0, 7, 4, 5, 200):
        assert shop.item(number) == whole[number]
    assert len({item.product["asin"] for item in whole}) == 400
    assert all(len(item.product["asin"]) == 10 for item in whole)
    said = [one["instruction"] for item in whole for one in item.instructions]
    assert len(said) == len(set(said)) > 3990
    json.dumps([item.product for item in whole])


def test_a_large_catalogue_has_as_many_goals_as_the_released_one():
    shop = GeneratedShop(1_180_000)
    numbers = range(590_000, 590_236)
    assert sum(len(shop.item(number).instructions) for number in numbers) == 2  # one for each 118 products


def test_every_goal_has_a_product_worth_everything():
    catalog = open_catalog(products=600)
    tagger = open_tagger("default")
    for human in (True, False):
        goals = catalog.goals(human)
        assert len(goals) > 5_000
        for goal in itertools.islice(goals, 0, 5_000, 10):
            product = catalog.product(goal.asin)
            assert product is not None
            if isinstance(goal.options, dict):
                chosen = goal.options
            else:
                chosen = {}
                for value in goal.options:
                    chosen[next(n for n, v in product.options.items() if value in v and n not in chosen)] = value
            reward, parts = purchase_reward(product, goal, catalog.price(goal.asin), chosen, tagger)
            assert reward == 1.0, (goal, parts)


def test_written_files_are_the_generated_catalogue(tmp_path, monkeypatch, released_files):
    folder = released_files.write_shop(tmp_path / "files", 60)
    written, made = open_catalog(folder), open_catalog(products=60)
    assert list(written.products()) == list(made.products())
    assert list(written.goals(True)) == list(made.goals(True))
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))
    store = prepare.prepare("webshop", str(folder))
    assert store == tmp_path / "data" / "webshop"
    assert list(open_catalog("official").products()) == list(made.products())
    assert open_catalog(store).search("lamp", 5) == made.search("lamp", 5)
    prepare.prepare("webshop", str(folder))  # said again, it replaces what is there
    (store / "catalog.sqlite").write_bytes(b"")
    webshop_catalog._stores.clear()
    with pytest.raises(DataError, match="is incomplete .* agentr1 prepare webshop"):
        open_catalog("official")


def test_the_released_files_are_downloaded(tmp_path, monkeypatch, released_files):
    site = released_files.write_shop(tmp_path / "site", 8)
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))
    known = {path.name: {"url": path.as_uri(), "bytes": path.stat().st_size} for path in site.iterdir()}
    monkeypatch.setattr(downloads, "released_files", lambda task: known)
    prepare.prepare("webshop")
    assert len(open_catalog("official")) == 8


@pytest.mark.parametrize(
    ("options", "wish", "chosen"),
    [
        ({"color": ["green", "olive green"]}, "in olive green", {"color": "olive green"}),
        ({"size": ["large", "x-large", "3x-large"]}, "size 3x-large please", {"size": "3x-large"}),
        ({"size": ["6", "6.5", "16"]}, "size 6.5", {"size": "6.5"}),
        ({"color": ["black", "black | red"]}, "shoes in black | red", {"color": "black | red"}),
        ({"style": ["matte", "sheer"]}, "matte finish, the style is sheer", {"style": "sheer"}),
        ({"size": ['59"', '65"']}, 'a lamp with size: 59", and price', {"size": '59"'}),  # synthetic goals
        ({"color": ["red"], "trim": ["red"]}, "in red", {"color": "red"}),  # one word is one choice
        ({"color": ["white"]}, "any will do", {}),
        ({"color": [""]}, "nothing", {}),
    ],
)
def test_options_are_read_from_the_wish(options, wish, chosen):
    found = choose_options(options, wish)
    assert {name: found[name] for name in chosen} == chosen
    assert set(found) <= set(options)


def test_the_expert_knows_what_to_do_after_the_searches_of_another():
    """Pages that are cut, mistakes, searches of its own: from each of them there is a next action."""
    env_kwargs = {"max_observation_length": 700}
    options = [{"index": index} for index in range(150, 180)]
    policy = agent_envs.policies.ExpertPolicy(noise=0.6, seed=0)
    episodes = agent_envs.run_episodes(
        "AgentR1/WebShop-v0", policy, len(options), env_kwargs=env_kwargs, options=options, progress=False
    )
    assert [episode.error for episode in episodes if episode.error] == []
