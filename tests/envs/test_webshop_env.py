"""WebShop as an environment: actions, pages, splits, rewards, rendering, and bad input.

1. What the traces do not show: attributes pages, commands in searches, queries that look like addresses, one value in
   two options, values with quotes, accents and the names of buttons.
2. Every goal of the real products is playable, the human ones for full marks.
3. Goals by index within a split and by number in the whole list; splits share none.
4. Bad actions leave the page as it is and say so in info; bad arguments are errors that name what is wrong.
5. HTML is escaped.
"""

import json
import re

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.datasets.webshop.rows import split_bounds
from agent_envs.envs.webshop.env import WebShopEnv
from agent_envs.errors import ConfigError, DataError, TaskIndexError
from agent_envs.wrappers import AsTool

QUOTED, MARKUP = '59"', "<script>alert('x')</script> &amp; \x1b[31m\x00"


def option(*values):
    return [{"value": value, "image": None} for value in values]


LAMP_ROW = {"asin": "B000000001", "name": "Acme Floor Lamp", "category": "garden", "query": "Floor Lamp "}
LAMP_ROW |= {"product_category": "Home › Lamps › Floor Lamps", "full_description": "A lamp."}
LAMP_ROW |= {"small_description": ["Steel frame.", "   ", "Bright \n light"], "pricing": "$40.00 to $50.00"}
LAMP_ROW |= {"images": ["https://example.com/lamp.jpg"]}
LAMP_ROW["customization_options"] = {
    "Color": option("Black", "Crème/White", "Gold [matte]"),
    "Trim": option("Black", "Search", "Reviews", "< Prev"),
    "Size": option(QUOTED, "6 feet"),
    "Empty": None,
}
BARE_ROW = {"asin": "B000000002", "name": "Plain tea", "query": "tea"}
BARE_ROW |= {"category": "grocery", "product_category": "Food"}
ODD_ROW = {"asin": "B000000003", "name": MARKUP, "query": "odd", "full_description": MARKUP}
ROWS = [LAMP_ROW, BARE_ROW, ODD_ROW | {"images": ["javascript:alert()"]}]
ASKED = {"instruction": "i want a steel frame lamp.", "instruction_attributes": ["steel frame"]}
FILES = {
    "shuffle": ROWS,
    "ins_v2": {
        LAMP_ROW["asin"]: ASKED | {"instruction": "Find me lamps", "attributes": ["steel frame", "easy assemble"]}
    },
    "human_ins": {LAMP_ROW["asin"]: [ASKED | {"instruction_options": ["black", QUOTED]}] * 12},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "cache"))
    place = tmp_path / "shop"
    place.mkdir()
    for name, content in FILES.items():
        (place / f"items_{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return place


@pytest.fixture
def play(folder):
    """Plays actions in a new environment; returns its last observation and info."""

    def run(*actions, **kwargs):
        env = WebShopEnv(data=folder, split="all", tagger="rule", **kwargs)
        result = env.reset(options={"index": 0})
        run.env = env
        for action in actions:
            observation, run.reward, run.terminated, _, info = env.step(action)
            result = observation, info
        return result

    return run


LAMP = ("search[lamp]", "click[b000000001]")


def clickables(info):
    return info["available_actions"]["clickables"]


# -- pages ---------------------------------------------------------------------------------------------------------


def test_an_item_page_has_its_texts_in_order(play):
    observation, info = play(*LAMP)
    assert observation.startswith("Instruction: [SEP] i want a steel frame lamp, and price lower than ")
    shown = observation.partition("< Prev [SEP] ")[2]
    assert shown == (
        "color [SEP] black [SEP] crème | white [SEP] gold [matte] [SEP] trim [SEP] black [SEP] search [SEP] reviews"
        ' [SEP] < prev [SEP] size [SEP] 59" [SEP] 6 feet [SEP] Acme Floor Lamp [SEP] Price: $40.0 to $50.0 [SEP]'
        " Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    assert clickables(info) == [
        *("back to search", "< prev", "description", "features", "reviews", "buy now"),
        *("black", "crème | white", "gold [matte]", "search", QUOTED, "6 feet"),
    ]


def test_one_value_in_two_options_chooses_the_last(play):
    observation, info = play(*LAMP, "click[black]", mode="text_rich")
    assert info["url"].endswith('/1/{"trim": "black"}')
    assert observation.count("[clicked button] black [clicked button_]") == 2
    assert observation.startswith("You have clicked black.\nYou have clicked black.\nInstruction:\n")


def test_values_with_brackets_cannot_be_clicked(play):
    assert "gold [matte]" in clickables(play(*LAMP)[1])
    assert play(*LAMP, "click[gold [matte]]")[1]["invalid_action"]  # the original takes it for click[gold [ and matte]


def test_halves_of_characters_are_shown_and_clicked_alike(folder, play):
    row = dict(ROWS[0], name="Lamp \ud800", customization_options={"Trim\udfff": option("Red\ud83d")})
    (folder / "items_shuffle.json").write_text(json.dumps([row]))
    observation, info = play(*LAMP)
    assert "trim\ufffd [SEP] red\ufffd [SEP] Lamp \ufffd" in observation
    _, info = play(*LAMP, f"click[{clickables(info)[-1]}]")
    assert not info["invalid_action"] and info["anchor"].encode()


def test_values_with_the_names_of_buttons_are_buttons(play):
    assert "[SEP] < Prev" in play(*LAMP, "click[reviews]")[0] and "Rating" not in play(*LAMP, "click[reviews]")[0]
    assert "Page 1 (Total results: 1)" in play(*LAMP, "click[< prev]")[0]
    assert play(*LAMP, "click[search]")[1]["invalid_action"]


def test_attributes_have_a_page_where_they_are_shown(play):
    assert play(*LAMP, "click[attributes]")[1]["invalid_action"]
    shown, info = play(*LAMP, "click[attributes]", show_attributes=True)
    assert shown.endswith(
        "< Prev [SEP] steel frame [SEP] easy assemble [SEP] garden [SEP] floor lamp [SEP] Home › Lamps › Floor Lamps"
    )
    assert info["url"].endswith("/lamp/1/Attributes/{}")


def test_options_stay_while_an_item_is_read_and_go_with_it(play):
    chosen = play(*LAMP, "click[6 feet]", "click[features]", "click[< prev]", mode="text_rich")[0]
    assert chosen.startswith("You have clicked 6 feet.")
    for way in (("click[< prev]",), ("click[back to search]", "search[lamp]"), ("search[lamp]",)):
        assert "[clicked button] 6" not in play(*LAMP, "click[6 feet]", *way, LAMP[1], mode="text_rich")[0]


def test_searches_that_find_nothing_and_pages_without_products(play):
    for query in ("zzzzz", " ", "the", "?!"):
        shown, info = play(f"search[{query}]")
        assert shown.endswith("Page 1 (Total results: 0) [SEP] Next >")
        assert not info["invalid_action"]
    shown, info = play("search[lamp]", "click[next >]", "click[next >]")
    assert shown.endswith("Page 3 (Total results: 1) [SEP] < Prev [SEP] Next >")
    assert clickables(info) == ["back to search", "< prev", "next >"]


@pytest.mark.parametrize(
    ("query", "total"),
    [
        ("<q> floor lamp", 1),
        ("<Q> TEA", 1),
        ("<q>", 0),
        ("<c> grocery", 1),
        ("<a> easy assemble", 1),
        ("<a> DUMMY_ATTR", 0),  # arguments are lower-cased
        ("<r>", 3),  # 50 of them, or all
    ],
)
def test_commands_in_searches(play, query, total):
    shown, info = play(f"search[{query}]")
    assert f"(Total results: {total})" in shown
    assert not info["invalid_action"]


def test_queries_that_look_like_addresses_deceive_the_back_button(play):
    shown, info = play("search[lamp search_results]", LAMP[1], "click[< prev]")
    assert shown.endswith("Page 0 (Total results: 1) [SEP] Next >")  # one page back from the first
    assert info["url"].endswith("/lamp+search_results/0")
    shown, _ = play("search[lamp item_page]", LAMP[1], "click[features]", "click[< prev]")
    assert "Page 1 (Total results: 1)" in shown  # from a sub-page, to the results


def test_the_receipt_has_the_choices_as_escaped_json(play):
    shown, info = play(*LAMP, f"click[{QUOTED}]", "click[crème | white]", "click[Buy Now]")
    assert 'options [SEP] {"color": "cr\\u00e8me | white", "size": "59\\""} [SEP] attrs' in shown
    assert shown.endswith("[SEP] Your score (min 0.0, max 1.0) [SEP] 0.75 [SEP] Reward Details [SEP] None")
    assert clickables(info) == []


# -- rewards -------------------------------------------------------------------------------------------------------

BUY = (*LAMP, "click[black]", f"click[{QUOTED}]", "click[Buy Now]")


def test_a_right_purchase(play):
    _, info = play(*BUY)
    assert (play.reward, play.terminated, info["score"], info["success"]) == (1.0, True, 1.0, True)
    assert info["reward_components"] == {"official": 1.0}
    assert info["reward_info"] == {
        "r_type": 1.0, "query_match": True, "category_match": True, "title_score": 1.0,
        "r_att": 1.0, "w_att": 0.25, "r_option": 1.0, "w_option": 0.5, "r_price": True, "w_price": 0.25,
    }  # fmt: skip
    assert "reward_info" not in play(*BUY[:-1])[1]


def test_agent_r1s_reward(play):
    play(*BUY, reward="agentr1")
    assert play.reward == 10.0
    _, info = play(*LAMP, "click[Buy Now]", reward="agentr1")
    assert (play.reward, info["score"], info["success"]) == (0.0, 0.5, False)
    _, info = play("Search[lamp]", reward="agentr1")
    assert (play.reward, info["reward_components"]) == (-0.1, {"agentr1": -0.1})
    play("search[lamp]", reward="agentr1")
    assert play.reward == 0.0


def test_prices_from_a_file_are_what_is_paid(play, tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text('{"B000000001": 1000000000}')
    play(*BUY, prices=prices)
    assert play.reward == 0.75


def test_the_same_as_a_tool(folder):
    env = AsTool(gym.make("AgentR1/WebShop-v0", data=folder, split="all", tagger="rule", reward="agentr1"))
    env.reset(options={"index": 0})
    for command in BUY:
        _, reward, terminated, _, info = env.step(env.format_command(command))
        assert not info["invalid_action"]
    assert (reward, terminated, info["success"]) == (10.0, True, True)
    env.reset(options={"index": 0})
    for text in ("search[lamp]", env.format_command("look")):
        _, reward, _, _, info = env.step(text)
        assert (reward, info["invalid_action"], info["url"]) == (-0.1, True, "http://127.0.0.1:3000/0")


# -- tasks ---------------------------------------------------------------------------------------------------------


def test_human_goals_by_default_and_synthetic_ones_on_request(folder):
    counts = {human: WebShopEnv(data=folder, split="all", human_goals=human).num_tasks for human in (None, True, False)}
    assert counts == {None: 12, True: 12, False: 3 * 4 * 2}
    (folder / "items_human_ins.json").unlink()
    assert WebShopEnv(data=folder, split="all").num_tasks == 24
    with pytest.raises(DataError, match="no human goals: items_human_ins"):
        WebShopEnv(data=folder, split="all", human_goals=True).reset()


def test_splits_share_no_goal_and_follow_the_original_on_long_lists():
    for count in (6, 13, 1500, 1501, 1693, 12_087):
        bounds = split_bounds(count)
        goals = [g for split in ("test", "validation", "train") for g in bounds[split]]
        assert goals == list(bounds["all"]) == list(range(count))
        assert len(bounds["test"]) == (500 if count > 1500 else count // 6)
    for count, train in ((1693, 193), (12_087, 10_587)):
        assert [len(split_bounds(count)[split]) for split in ("test", "validation", "train")] == [500, 1000, train]


def test_goals_by_index_and_by_number(folder):
    env = WebShopEnv(data=folder, split="validation")
    assert env.num_tasks == 2
    assert env.reset(options={"index": 1})[1]["goal"] == 3
    _, info = env.reset(options={"goal": 2})
    assert (info["goal"], info["split"], info["index"], info["task_id"]) == (2, "validation", 0, "webshop/2")
    snapshot = env.snapshot()
    env.reset(options={"goal": 3})
    assert env.restore(snapshot)[1]["goal"] == 2
    every = WebShopEnv(data=folder, split="all")
    assert [every.reset(options={"goal": number})[1]["goal"] for number in (0, 11)] == [0, 11]
    assert env.reset(seed=1)[1]["split"] == "validation"
    assert WebShopEnv(data=folder, split="eval").reset()[1]["split"] == "validation"
    for bad in (-1, 0, 12, 10**30):
        with pytest.raises(TaskIndexError, match=f"goals 2 to 3, got goal {bad}; split='all' has every goal"):
            env.reset(options={"goal": bad})
    with pytest.raises(TaskIndexError, match="'validation' has tasks 0 to 1, got index 2"):
        env.reset(options={"index": 2})
    for options in ({"goal": "1"}, {"goal": True}, {"goal": 1, "index": 1}, {"gaol": 1}):
        with pytest.raises(
            ConfigError, match="a reset option must be one of|may contain .index. or .goal.|must be an integer"
        ):
            env.reset(options=options)


def test_a_file_of_goals_is_played_in_its_order(folder, tmp_path):
    goal = {
        "asin": "B000000002", "name": "Plain tea", "query": "tea", "product_category": "Food",
        "attributes": ["plain tea"], "goal_options": [], "price_upper": 110.0,
    }  # fmt: skip
    path = tmp_path / "goals.jsonl"
    path.write_text("".join(json.dumps({**goal, "instruction_text": f"tea {n}"}) + "\n" for n in range(5)))
    env = WebShopEnv(data=folder, split="all", goals=path, tagger="rule")
    assert [env.reset(options={"goal": n})[0].split(" [SEP] ")[2] for n in range(5)] == [f"tea {n}" for n in range(5)]
    for action in ("search[tea]", "click[B000000002]"):
        env.step(action)
    assert env.step("click[buy now]")[1:3] == (1.0, True)


BROKEN_GOALS = [
    ("", "has no goals"),
    ('{"asin": "B1"}', "line 1: a goal needs 'name'"),
    ('{"asin": "B1", "name"', "line 1: not (valid JSON|a JSON object)"),
    ("[1]", "entry 1: a goal is an object"),
]
BROKEN_PRICES = ["", "[]", '{"B1": "x"}', '{"B1": NaN}', '{"B1": true}', '{"B1": 1', f'{{"B1": 1{"0" * 400}}}']
BROKEN = [*(("goals", *each) for each in BROKEN_GOALS), *(("prices", each, r"prices\.json") for each in BROKEN_PRICES)]


@pytest.mark.parametrize(("name", "content", "said"), BROKEN)
def test_broken_files_are_named(folder, tmp_path, name, content, said):
    path = tmp_path / f"{name}.json{'l' if name == 'goals' else ''}"
    path.write_text(content)
    with pytest.raises(DataError, match=said):
        WebShopEnv(**{"data": folder, name: path}).reset()


def test_products_that_overflow(folder):
    """A price too large for a float has no ceiling; combinations of options without end are no goals."""
    vast = dict(ROWS[0], pricing="$" + "9" * 400)
    (folder / "items_shuffle.json").write_text(json.dumps([vast]))
    env = WebShopEnv(data=folder, split="all", human_goals=True)
    assert env.reset(options={"goal": 0})[0].endswith("i want a steel frame lamp [SEP] Search")
    assert env.step("search[lamp]")[0].endswith("Acme Floor Lamp [SEP] $inf")
    vast["customization_options"] = {f"option {n}": option(*map(str, range(50))) for n in range(19)}
    (folder / "items_shuffle.json").write_text(json.dumps([vast]))
    assert WebShopEnv(data=folder, split="all").reset()[1]["goal"] < 12
    with pytest.raises(DataError, match="more than 100,000,000 synthetic goals"):
        WebShopEnv(data=folder, split="all", human_goals=False).reset()


def test_long_descriptions_are_shown_whole(folder):
    long = "a lamp " * 20_000
    (folder / "items_shuffle.json").write_text(json.dumps([dict(ROWS[0], full_description=long)]))
    env = gym.make("AgentR1/WebShop-v0", data=folder, split="all")
    env.reset()
    for action in (*LAMP, "click[description]"):
        shown = env.step(action)[0]
    assert shown.endswith(f"< Prev [SEP] {long.strip()}")


@pytest.mark.parametrize(("steps", "truncated_at"), [(None, 15), (40, 40), (-1, None)])
def test_how_many_steps_there_are_is_a_matter_of_the_make(folder, steps, truncated_at):
    env = gym.make("AgentR1/WebShop-v0", data=folder, split="all", max_episode_steps=steps)
    env.reset()
    cut = [step for step in range(1, 60) if env.step("search[lamp]")[3]]
    assert cut == ([] if truncated_at is None else list(range(truncated_at, 60)))


# -- bad actions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        "", " ", "buy", "search", "search[]", "search[", "search lamp", "Search[lamp]", "SEARCH[lamp]", "click[]",
        "click[buy now", "click[buy now]", "click[search]", "click[B000000002]", "click[ next >]", "think[lamp]",
        " search[lamp]", "I will\nsearch[lamp]", "search[a[b]]", "\x00\x1b[31m", "😀[😀]", "buy[now]" * 1000,
        "search[<c>]",  # a command that lacks its value
    ],
)  # fmt: skip
def test_bad_actions_leave_the_page_as_it_is(play, action):
    first, _ = play("search[lamp]")
    shown, info = play("search[lamp]", action)
    assert shown == first
    assert info["invalid_action"] and not play.terminated and play.reward == 0.0
    assert clickables(info) == ["back to search", "next >", "b000000001"]


def test_what_comes_behind_the_bracket_and_upper_case_arguments_do_not_matter(play):
    assert not play("search[LAMP] please")[1]["invalid_action"]
    assert not play("search[lamp]", "click[NEXT >]")[1]["invalid_action"]


def test_a_pressed_button_needs_its_page(play):
    for actions in (("click[back to search]",), ("search[lamp]", "click[buy now]"), (*LAMP, "click[next >]")):
        assert play(*actions)[1]["invalid_action"]


# -- people --------------------------------------------------------------------------------------------------------


def test_html_is_escaped(play, folder):
    env = WebShopEnv(data=folder, split="all", render_mode="html")
    env.reset()
    for action in ("search[<q> odd]", "click[b000000003]", "click[description]", "<img src=x onerror=alert(1)>\x1b[2J"):
        env.step(action)
        page = env.render()
        assert page.startswith("<!DOCTYPE html>")
        assert not re.search(r"<(script|img)", page)
        assert "\x1b" not in page and "\x00" not in page
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp;amp; \\x1b[31m\\x00" in page
    assert "&lt;img src=x onerror=alert(1)&gt;\\x1b[2J" in page
    env.step("search[lamp]")
    env.step("click[b000000001]")
    env.step("click[6 feet]")
    page = env.render()
    assert '<img src="https://example.com/lamp.jpg"' in page
    assert '<span class="button chosen">6 feet</span>' in page


def test_people_watch_a_file(folder, tmp_path, capsys):
    page = tmp_path / "watch" / "page.html"
    env = gym.make("AgentR1/WebShop-v0", data=folder, split="all", render_mode="human", page=page)
    env.reset()
    assert page.resolve().as_uri() in capsys.readouterr().out
    env.step("search[lamp]")
    assert "Page 1 (Total results: 1)" in page.read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""
    assert [p.name for p in page.parent.iterdir()] == ["page.html"]
    env = gym.make("AgentR1/WebShop-v0", data=folder, split="all", render_mode="human", page=page / "below.html")
    with pytest.raises(ConfigError, match="page cannot be written"):
        env.reset()


def test_a_temporary_page_goes_with_the_environment(folder, capsys):
    env = WebShopEnv(data=folder, split="all", render_mode="human")
    env.reset()
    page = env.page_file
    assert page.is_file() and page.as_uri() in capsys.readouterr().out
    env.close()
    assert not page.parent.exists()


def test_control_characters_in_data_do_not_reach_the_terminal(folder):
    env = WebShopEnv(data=folder, split="all", render_mode="ansi")
    env.reset()
    env.step("search[<q> odd]")
    assert "\x1b" not in env.render() and "\\x1b[31m" in env.render()


# -- real products -------------------------------------------------------------------------------------------------


def buy_for(env, goal):
    """Find the goal's product by its query, choose what is asked for, buy."""
    product = env.site.catalog.product(goal.asin)
    info = env.step(f"search[<q> {product.query}]")[4]
    while product.asin.lower() not in clickables(info):
        info = env.step("click[next >]")[4]
        assert not info["invalid_action"]
    info = env.step(f"click[{product.asin}]")[4]
    for value in goal.options.values() if isinstance(goal.options, dict) else goal.options:
        if value in clickables(info):
            info = env.step(f"click[{value}]")[4]
            assert not info["invalid_action"]
    return env.step("click[Buy Now]")


@pytest.mark.parametrize(("human", "count", "mean"), [(True, 13, 1.0), (False, 6910, 0.97)])
def test_every_goal_of_the_real_products_is_playable(data_dir, human, count, mean):
    env = WebShopEnv(data=data_dir / "webshop", split="all", human_goals=human)
    assert env.num_tasks == count
    rewards = []
    for number in range(0, count, 1 if human else 25):
        observation = env.reset(options={"goal": number})[0]
        assert env.task.goal.instruction.strip() in observation
        _, reward, terminated, _, info = buy_for(env, env.task.goal)
        assert terminated and info["score"] == reward > 0.3, number
        rewards.append(reward)
    assert sum(rewards) / len(rewards) >= mean
