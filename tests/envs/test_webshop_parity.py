"""WebShop against traces of the original environment, line for line.

1. Every observation, reward, end, list of clickables, search bar, address and reward_info of the traces.
2. Prices and goals are drawn here: they are the traces' own, to the last bit and in their order.
"""

import json

import pytest

from agent_envs.datasets.webshop.catalog import open_catalog
from agent_envs.datasets.webshop.goals import read_goals, read_prices
from agent_envs.envs.webshop.env import WebShopEnv

TRACES = {"human_text": (True, "text"), "human_text_rich": (True, "text_rich"), "synth_text": (False, "text")}


@pytest.fixture(scope="module")
def folder(data_dir):
    return data_dir / "webshop_synthetic"


def replay(env, rows):
    for row in rows:
        if row["action"] is None:
            observation, info = env.reset(options={"goal": row["goal"]})
            reward, terminated = 0.0, False
            assert row["instruction"] == f"Instruction: {env.task.goal.instruction}"
        else:
            observation, reward, terminated, truncated, info = env.step(row["action"])
            assert not truncated
        yield (
            row,
            {
                "obs": observation,
                "reward": reward,
                "done": terminated,
                "clickables": info["available_actions"]["clickables"],
                "has_search_bar": info["available_actions"]["has_search_bar"],
                "url": info["url"],
                **({"reward_info": info["reward_info"]} if "reward_info" in info else {}),
            },
        )


@pytest.mark.parametrize("name", TRACES)
def test_every_line_of_the_traces_is_reproduced(folder, name):
    human, mode = TRACES[name]
    env = WebShopEnv(data=folder, split="all", mode=mode, human_goals=human, tagger="rule")
    rows = [json.loads(line) for line in (folder / f"trace_{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) > 300
    for row, got in replay(env, rows):
        where = f"goal {row['goal']}, step {row['t']}, {row['action']}"
        assert got == {key: row[key] for key in got}, where
        assert set(row) - set(got) <= {"action", "goal", "t", "instruction"}, where


@pytest.mark.parametrize(("human", "name"), [(True, "goals_human_seed0"), (False, "goals_synth_seed0")])
def test_goals_and_prices_drawn_here_are_those_of_the_traces(folder, human, name):
    catalog = open_catalog(folder)
    goals, wanted = list(catalog.goals(human)), read_goals(folder / f"{name}.jsonl")
    assert goals == wanted
    prices = read_prices(folder / "prices_seed0.json")
    assert {product.asin: catalog.price(product.asin) for product in catalog.products()} == prices
