"""The released recipes, replayed: traces written by hand from what the releases do.

1. Each recipe shows its sections, with `None` where there is nothing, and a system message of its own.
2. Its calls are read, chosen and refused as released; a refused text uses a decision and does not touch the task.
3. Rewards and ends are the released ones. 4. The wording can be the user's own, as data.
"""

import json

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.datasets.webshop.catalog import open_catalog, released_search
from agent_envs.errors import BackendError, ConfigError
from agent_envs.messages import observation_messages
from agent_envs.parsers import get_parser
from agent_envs.tasks import read_rows
from agent_envs.testing import HOSTILE_ACTIONS, check_text_env
from agent_envs.wrappers import RebuildPrompt
from agent_envs.wrapping.recipes import RECIPES, RELEASES, recipe
from agent_envs.wrapping.specs import make_text_env
from tests.helpers import prompt_sections as sections
from tests.helpers import tool_call

DONE = "Nothing has changed.\nThe observation before:\n"


def call(command, name="env_step", key="command"):
    return tool_call(name, **{key: command})


@pytest.fixture
def play():
    """Make a recipe's environment and begin a task."""
    made = []

    def begin(task, release=None, index=0, **env_kwargs):
        made.append(make_text_env(*recipe(task, release, **env_kwargs)))
        observation, info = made[-1].reset(options={"index": index})
        return made[-1], observation, info

    yield begin
    for env in made:
        env.close()


# -- ALFWorld ----------------------------------------------------------------------------------------------------------

ROOM = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
    "cabinet 1, a coffeemachine 1, a countertop 1, a drawer 1, a fridge 1, a microwave 1, a sinkbasin 1, and a "
    "stoveburner 1.\n\nYour task is to: put a hot egg in sinkbasin."
)
EMPTY_HANDED = "You are not carrying anything."


def test_a_house_shows_the_last_two_steps_and_what_came_before_them(play):
    env, prompt, info = play("alfworld", size=1)
    shown = sections(prompt)
    assert [*shown] == [
        *("Task", "Recent Interaction History", "Current Observation", "Admissible Commands"),
        *("Instructions", "Output Format"),
    ]
    assert shown["Task"] == "Your task is to: put a hot egg in sinkbasin."
    assert shown["Recent Interaction History"] == "None" and shown["Current Observation"] == ROOM == info["anchor"]
    commands = [f"- {each}" for each in info["admissible_commands"] if each != "help"]
    assert shown["Admissible Commands"].splitlines() == commands
    assert shown["Instructions"].count("\n- ") == 5 and "env_step" in env.get_wrapper_attr("instructions")
    assert info["rebuilt"] and observation_messages(prompt, info) == [{"role": "user", "content": prompt}]
    parameters = env.get_wrapper_attr("tools")[0]["function"]["parameters"]
    assert parameters["required"] == ["command"] and "additionalProperties" not in parameters

    # The first of two calls counts, one in reasoning too; then a command that is not admissible is carried out.
    env.step(f"<think>{call(' inventory ')}</think>{call('look')}")
    prompt, reward, *_, info = env.step(call("fly"))
    shown = sections(prompt)
    assert shown["Current Observation"] == "Nothing happens." == info["anchor"] and reward == 0
    assert shown["Recent Interaction History"] == (
        f"[Observation 1]\n{ROOM}\n[Action 1]\ninventory\n\n[Observation 2]\n{EMPTY_HANDED}\n[Action 2]\nfly"
    )
    prompt = env.step(call("inventory"))[0]
    assert sections(prompt)["Recent Interaction History"] == (
        f"[Observation 2]\n{EMPTY_HANDED}\n[Action 2]\nfly\n\n[Observation 3]\nNothing happens.\n[Action 3]\ninventory"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("go to fridge 1", "there is no call of a tool"),
        ("<tool_call>{oops}</tool_call>", "there is no call of a tool"),
        ('<tool_call>{"name": "env_step"', "there is no call of a tool"),
        (call("look", name="act") + call("look"), "there is no tool 'act'."),
        (call(" "), "the command is empty"),
        ('<tool_call>{"name": "env_step", "arguments": "look"}</tool_call>', "wrong arguments for env_step"),
    ],
)
def test_a_text_without_a_command_uses_a_decision_and_wraps_the_observation(text, reason, play):
    env, _, first = play("alfworld", size=1)
    env.step(call("inventory"))
    prompt, reward, terminated, truncated, info = env.step(text)
    notice = sections(prompt)["Current Observation"]
    assert f"\nReason: {reason}" in notice and notice.endswith(f"\n\n{DONE}{EMPTY_HANDED}")
    history = sections(prompt)["Recent Interaction History"]
    assert f"[Observation 2]\n{EMPTY_HANDED}\n[Action 2]\n<invalid_tool_call>: {reason}" in history
    assert info["invalid_action"] and info["admissible_commands"] == first["admissible_commands"]
    assert (reward, terminated, truncated) == (0, False, False) and info["anchor"] == notice
    prompt = env.step(text)[0]
    assert sections(prompt)["Current Observation"].endswith(f"{DONE}{notice}")  # notices nest
    for _ in range(15):
        assert not env.step(text)[3]
    assert env.step(call("look"))[1:4] == (0, False, False) and env.step(text)[1:4] == (0, False, True)  # 20 decisions


@pytest.mark.parametrize("release", ["steppo", "agent-r1"])
def test_older_releases_show_all_actions_and_no_observations(release, play):
    env, prompt, _ = play("alfworld", release, size=1)
    assert [*sections(prompt)][:4] == ["Task", "Current Observation", "History Actions", "Admissible Commands"]
    assert sections(prompt)["History Actions"] == "None"
    for text in (call("inventory"), "hm", call("look")):
        prompt = env.step(text)[0]
    assert sections(prompt)["History Actions"] == (
        "[Action 1] inventory\n[Action 2] <invalid_tool_call>: there is no call of a tool\n[Action 3] look"
    )


# -- WebShop -----------------------------------------------------------------------------------------------------------


def test_a_shop_takes_exactly_one_call_and_cuts_what_it_showed(play):
    env, prompt, _ = play("webshop")
    assert [*sections(prompt)] == [
        *("Shopping Instruction", "Recent History", "Current Observation", "Available Actions", "Instructions")
    ]
    assert "- search[<your query>]" in sections(prompt)["Available Actions"].splitlines()
    prompt, reward, *_, info = env.step(call("search[mug]") + call("search[cup]"))
    assert reward == -0.1 and info["reward_components"] == {"invalid_call": -0.1}
    assert "\nINVALID_TOOL_CALL: there are 2 calls" in sections(prompt)["Recent History"]
    _, reward, *_, info = env.step(call("search[mug]"))
    assert reward == 0 and not info["invalid_action"]
    prompt = env.step(call("search[mug]"))[0]
    shown = sections(prompt)["Recent History"].partition("[Observation 3]\n")[2].partition("\n[Action 3]")[0]
    assert (len(shown) == 1800 and shown.endswith("...")) or len(shown) < 1800


LAMP, SHADE = (
    {
        "asin": asin, "name": f"{kind}  of Oak " + "x" * 300, "category": "home", "query": "Oak Lamps", "brand": "Holm",
        "product_category": "Home \u203a Lighting", "full_description": f"Turned by hand. {kind} of the north.",
        "small_description": ["Dims to 5%", "Warm light"], "pricing": pricing, "images": [], "average_rating": 4.5,
        "customization_options": {"Size": [{"value": "Tall / Slim", "image": None}, {"value": "low", "image": None}]},
    }
    for asin, kind, pricing in (("B00000LAMP", "Lamp", "$20.00"), ("B0000SHADE", "Shade", ""))
)  # fmt: skip
SAID = {"attributes": ["warm light", "by hand"], "instruction": "Find a  LAMP", "instruction_attributes": ["by hand"]}
ASKED = {"instruction": "A lamp.", "instruction_attributes": ["turned by hand"], "instruction_options": ["LOW"]}


@pytest.fixture
def shop(play, tmp_path):
    """Begin a goal of a shop of two products in the recipe of the full or the small shop."""

    def begin(task, **env_kwargs):
        files = {"items_shuffle": [LAMP, SHADE], "items_ins_v2": {LAMP["asin"]: SAID}}
        files |= {"items_human_ins": {LAMP["asin"]: [ASKED]}} if task == "webshop" else {}
        for name, rows in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(rows))
        return play(task, data=str(tmp_path), split="all", tagger="rule", **env_kwargs)

    return begin


def test_every_product_of_the_full_shop_opens_from_everywhere_and_options_outlive_a_search(shop):
    env, prompt, _ = shop("webshop")
    goal = env.unwrapped.task.goal
    assert goal.options == ("low",) and goal.price_upper in (40.0, 50.0, 60.0)
    assert goal.instruction == f"A lamp, and price lower than {goal.price_upper:.2f} dollars"
    assert sections(prompt)["Current Observation"].splitlines()[1] == f"Instruction: {goal.instruction}"
    prompt, reward, over, *_ = env.step(call("CLICK[b0000shade]"))  # from the first page, in any case
    page = sections(prompt)["Current Observation"].splitlines()
    title = "Shade of Oak " + "x" * 300
    assert page[2:6] == [
        *("ASIN: B0000SHADE", f"Title: {title[:257]}...", "Price: $100.00", "Category: Home \u203a Lighting")
    ]
    assert page[8] == "- size (selected: not selected): tall | slim, low"
    assert sections(prompt)["Available Actions"].splitlines() == [
        *("- search[<your query>]", "- click[Description]", "- click[Features]", "- click[Reviews]"),
        *("- click[tall | slim]", "- click[low]", "- click[Back to Search]", "- click[Buy Now]"),
    ]
    env.step(call("click[LOW]"))
    prompt, reward, over, *_ = env.step(call("Search[Holm OAK]"))  # a brand is searched for too
    page = sections(prompt)["Current Observation"].splitlines()
    assert page[2:4] == ["Query: holm oak", "Page: 1"] and len(page) == 8
    rows = [line for line in page if line.startswith("[")]
    assert {row.split()[0] for row in rows} == {"[1]", "[2]"} and all(
        row.endswith(("... | $100.00 | oak lamps", "... | $20.0 | oak lamps")) for row in rows
    )
    assert env.unwrapped.state.options == {"size": "low"}
    for command in ("click[next >]", "click[Next >]"):  # without bound
        prompt, reward, over, *_ = env.step(call(command))
    assert (
        "No products" not in prompt
        and "Page: 3" in prompt
        and "- click[< Prev]" in prompt
        and "- click[Next >]" not in prompt
    )
    for command in ("click[blue]", "look", "click[low]"):  # no product is open: a step, and no penalty
        _, reward, over, *_ = env.step(call(command))
        assert reward == 0 and not over
    env.step(call(f"click[{LAMP['asin']}]"))
    assert env.unwrapped.state.options == {}
    assert "Turned by hand." in env.step(call("click[description]"))[0]
    assert "- click[Back to Item]" in env.step(call("click[features]"))[0]
    reviews = env.step(call("click[Reviews]"))[0]
    assert f"ASIN: {LAMP['asin']}\nTitle: " in reviews and "\nAverage rating: 4.5\nNumber of reviews: N.A." in reviews
    env.step(call("click[low]"))
    shown = sections(env.step(call("click[ Back  to search ]"))[0])  # to the results, with the product still chosen
    assert "Query: holm oak\nPage: 3" in shown["Current Observation"] and "Buy" not in shown["Available Actions"]
    _, reward, over, *_, info = env.step(call("click[Buy Now]"))
    assert (reward, over, info["score"], info["success"]) == (10.0, True, 1.0, True)


def test_a_purchase_without_a_product_ends_with_nothing(shop):
    env, *_ = shop("webshop")
    _, reward, over, *_, info = env.step(call("click[buy now]"))
    assert (reward, over, info["score"], info["success"]) == (0.0, True, 0.0, False)


@pytest.mark.parametrize("site", ["agentr1", "agentr1-small"])
def test_a_released_shop_keeps_the_contract_of_every_environment(site):
    check_text_env("AgentR1/WebShop-v0", env_kwargs={"site": site, "products": 60, "tagger": "rule"}, vectors=False)


def test_a_damaged_index_of_the_full_shop_is_built_again(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    catalog = open_catalog(products=61)
    found = released_search(catalog, "agentr1")("lamp", 5)
    (index,) = tmp_path.glob("indexes/webshop-agentr1-*/index.json")
    index.write_text("{")
    released_search.cache_clear()
    assert released_search(catalog, "agentr1")("lamp", 5) == found
    assert index.read_text() != "{"


def test_the_small_shop_wants_the_goals_own_product(shop):
    env, prompt, _ = shop("webshop-small")
    numbers = {}
    for number, goal in enumerate(env.unwrapped.tasks.goals):
        numbers[goal.instruction] = number
        assert goal.price_upper == 31.0 and goal.attributes == ("by hand",)
    assert {*numbers} == {"find a lamp with size: tall | slim", "find a lamp with size: low"}
    env.reset(options={"goal": numbers["find a lamp with size: low"]})
    prompt = env.step(call("search[lamp 5]"))[0]
    assert "[1] B00000LAMP | Lamp of Oak xxx" in prompt
    env.step(call("click[B0000SHADE]"))
    env.step(call("click[low]"))
    _, reward, over, *_, info = env.step(call("click[Buy Now]"))
    # the attribute and the option fit, the price does not, and the product is another: half of 0.3 + 0.25
    assert (reward, over) == (0.0, True) and info["score"] == pytest.approx(0.275)
    env.reset(options={"goal": numbers["find a lamp with size: low"]})
    env.step(call("click[B00000LAMP]"))
    *_, info = env.step(call("click[Buy Now]"))
    assert info["score"] == pytest.approx(0.75) and not info["success"]


def test_the_small_shops_goals_are_the_released_rows(data_dir):
    for split, count in (("train", 6710), ("test", 200)):
        folder = data_dir / "agentr1_release" / "webshop"
        env = gym.make(
            "AgentR1/WebShop-v0", site="agentr1-small", data=str(data_dir / "webshop"), split=split
        ).unwrapped
        assert env.num_tasks == count
        for row, _ in list(read_rows(folder / f"{split}.parquet"))[::10]:
            said = row["reward_model"]["ground_truth"]
            goal = env.tasks.goals[said["goal_index"]]
            assert env.tasks[env.tasks.index_of(said["goal_index"])].goal is goal
            assert all(getattr(goal, name) == said[name] for name in ("asin", "instruction", "price_upper"))
            assert goal.options == {pair["name"]: pair["value"] for pair in said["goal_options"]}


# -- HotpotQA ----------------------------------------------------------------------------------------------------------

ROW = {"_id": "q0", "question": "Where was the maker of the Lamp born?", "answer": "The Oslo", "type": "bridge"}
ROW |= {"level": "hard", "supporting_facts": [["Lamp", 0], ["Ada", 0]]}
LONG = "It was made\nby Ada. " + "x" * 1300
ROW |= {"context": [["Lamp", [LONG]], ["Lamp", [f"{LONG}y"]], ["Ada", ["Ada was born in Oslo."]]]}


@pytest.fixture
def quiz(play, tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps([ROW]))
    return play("hotpotqa", data=str(tmp_path / "rows.json"), split="all")


def test_a_question_is_searched_for_first_and_passages_are_listed_once(quiz):
    env, prompt, info = quiz
    question = ROW["question"]
    shown = sections(prompt)
    assert [*shown] == [
        *("User Query", "History Actions", "Retrieved Passages", "Recent tool / format issues"),
        *("Instructions", "Output Format"),
    ]
    assert shown["User Query"] == question and shown["History Actions"] == f"[Search] {question}"
    lamp = next(line for line in shown["Retrieved Passages"].splitlines() if "Lamp It was made by" in line)
    begin = f"(query: {question}) "
    assert len(lamp.partition(begin)[2]) == 1200 and shown["Recent tool / format issues"] == "None"
    assert info["anchor"] == prompt
    # Two more searches, one under the other name; other tools are ignored and calls beyond the fourth dropped.
    texts = [call("Ada", "wiki_search", "query"), call("x", "lookup", "query"), call("Ada Oslo", "search", "query")]
    prompt, reward, terminated, *_ = env.step("".join([*texts, *texts]) + "<answer>Oslo</answer>")
    queries = [question, "Ada", "Ada Oslo", "Ada"]
    assert sections(prompt)["History Actions"] == "\n".join(f"[Search] {each}" for each in queries)
    passages = [line.partition(begin)[2] for line in sections(prompt)["Retrieved Passages"].splitlines()]
    assert sorted(passages)[1:] == ["Lamp " + LONG.replace("\n", " ")[:1195]] * 2 and len(passages) == 3
    assert (reward, terminated) == (0, False)


def test_a_call_without_a_query_leaves_a_line_that_stays(quiz):
    env, *_ = quiz
    searches = call(" ", "search", "query"), call("x", "search", "q"), call("Ada", "search", "query")
    for text in (call("x", "lookup", "query"), *searches):
        prompt, reward, terminated, truncated, _ = env.step(text)
    lines = sections(prompt)["Recent tool / format issues"].splitlines()
    assert len(lines) == 3 and all("arguments" in line for line in lines) and not (reward or terminated or truncated)
    assert env.step(call("Ada", "search", "query"))[1:4] == (0, False, True)  # five steps, no answer


def test_a_search_that_fails_stands_among_the_searches_and_nothing_is_said_of_it(quiz):
    long = "a" * 5000
    prompt, reward, terminated, _, info = quiz[0].step(call(long, "search", "query") + call("Ada", "search", "query"))
    assert sections(prompt)["History Actions"].splitlines()[1:] == [f"[Search] {long}", "[Search] Ada"]
    assert sections(prompt)["Recent tool / format issues"] == "None" and not info["invalid_action"]
    assert (reward, terminated) == (0, False)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<analysis>Oslo</analysis><answer>no</answer> <Answer>oslo.</ANSWER>", 1),
        (" an Oslo \n", 1),  # the whole text
        ("in Oslo", 0),
        ("", 0),
        ("<tool_call>{oops}</tool_call><answer>Oslo</answer>", 1),  # no readable call: the end
        ('<tool_call>{"name": "search"<answer>Oslo</answer>', 1),
        ("<tool_call>{'name': 'search', 'arguments': {'query': 'Ada'}}</tool_call><answer>Oslo</answer>", None),
    ],
)
def test_any_text_without_a_call_ends_the_question(text, reward, quiz):
    *_, given, terminated, truncated, info = quiz[0].step(text)[:]
    assert (given, terminated, truncated) == ((0, False, False) if reward is None else (reward, True, False))
    assert info["success"] == bool(reward)


def test_a_prompt_of_too_many_tokens_shows_fewer_passages_then_loses_its_end(quiz, monkeypatch):
    env = quiz[0].env

    class Counter:
        """A character is a token."""

        def start(self, messages):
            return [0] * sum(len(message["content"]) for message in messages)

    def rebuilt(max_tokens):
        env_of = RebuildPrompt(env, template="capo")
        env_of.max_tokens, env_of._shared = max_tokens, (env_of._shared[0], Counter())
        return env_of.reset(options={"index": 0})[0], len(env_of.get_wrapper_attr("instructions"))

    whole, told = rebuilt(100_000)
    prompt, _ = rebuilt(len(whole) + told - 1)
    assert sections(prompt)["Retrieved Passages"].endswith("(1 more are left out.)") and "### Output Format" in prompt
    prompt, told = rebuilt(700)
    assert len(prompt) + told <= 700 and prompt.startswith("### User Query") and "### Output" not in prompt


# -- PaperSearch -------------------------------------------------------------------------------------------------------

PAPERS = [
    {"id": "1", "title": "On Tea", "abstract": "tea " * 500, "references": ["2", "3"], "citations": []},
    {"id": "2", "title": "More Tea", "abstract": "Green.", "references": [], "citations": ["1"]},
    {"id": "3", "title": "Bare", "abstract": "", "references": [], "citations": ["1"]},
]


def test_papers_are_found_listed_and_paid_for(play, tmp_path):
    (tmp_path / "papers.jsonl").write_text("\n".join(json.dumps(paper | {"date": "2020-01-01"}) for paper in PAPERS))
    row = {"question": "What is known of tea?", "answer": ["On Tea", "More Tea", "Bare"], "qid": "q"}
    row["source_meta"] = {"published_time": "20190101"}  # before the papers, all of which count as released
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    files = {"data": str(tmp_path / "rows.jsonl"), "corpus": str(tmp_path / "papers.jsonl"), "split": "all"}
    env, prompt, info = play("papersearch", **files)
    shown = sections(prompt)
    assert [*shown] == ["User Query", "History Actions", "Paper List", "Instructions", "Output Format"]
    assert shown["History Actions"] == "None" and "[" not in shown["Paper List"] and info["anchor"] == prompt
    assert [each["function"]["name"] for each in env.get_wrapper_attr("tools")] == ["search", "expand"]

    # Unknown tools count for nothing; a repeated query and an unknown id cost 0.5 each; a bare string is a query.
    texts = [call("tea", "search", "query"), call("tea", "search", "query"), call("9", "expand", "paper_id")]
    bare = '<tool_call>{"name": "search", "arguments": "Tea"}</tool_call>'
    prompt, reward, *_, info = env.step(
        "".join([*texts, call("x", "finish", "y"), bare, call("late", "search", "query")])
    )
    found = len(info["found"])
    assert reward == found - 1 and 1 <= found <= 2
    history = ["[Search] tea", "[Search] tea", "[Expand] 9", "[Search] Tea"]
    assert sections(prompt)["History Actions"].splitlines() == history
    legend, *papers = sections(prompt)["Paper List"].split("\n\n")
    assert len(legend.splitlines()) == 4 and len(papers) == found
    assert f"[1] (1.00) [NEW] On Tea\nAbstract: {' '.join(['tea'] * 400)}..." in papers

    # Papers without an abstract do not come of an expansion, and a second one costs 0.5.
    prompt, reward, *_, info = env.step(call("1", "expand", "paper_id") + call("1", "expand", "paper_id"))
    assert reward == (2 - found) - 0.5 and info["pool"] == 2 and "[1] (1.00) [EXP] On Tea" in prompt
    assert [line[:3] for line in prompt.splitlines() if "(1.00)" in line] == ["[2]", "[1]"]  # the larger id first
    assert env.step(call("x", "nothing", "y"))[1:4] == (0, False, False)
    assert env.step("<tool_call>{oops}</tool_call>")[1:4] == (0, True, False)


class BrokenPapers:
    """A service that is down."""

    blocking = False

    def search(self, query, k=10, before=None):
        raise BackendError("down")

    def expand(self, paper_id):
        raise BackendError("down")


def test_a_service_that_is_down_finds_nothing(play, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "Tea?", "answer": ["On Tea"]}))
    named = {"data": str(tmp_path / "rows.jsonl"), "split": "all", "backend": BrokenPapers()}
    env, *_ = play("papersearch", **named)
    prompt, reward, *_, info = env.step(call("tea", "search", "query"))
    assert (reward, info["invalid_action"]) == (0, False) and "[Search] tea" in prompt
    assert env.step(call("tea", "search", "query"))[1] == -0.5  # it was searched for
    own = gym.make("AgentR1/PaperSearch-v0", **named)
    own.reset()
    with pytest.raises(BackendError):
        own.step(call("tea", "search", "query"))


# -- GSM8K -------------------------------------------------------------------------------------------------------------


def test_a_problem_is_one_text_without_a_system_message(play):
    env, prompt, _ = play("gsm8k")
    task = env.unwrapped.task
    assert prompt.startswith(f"{task.question}\n\n") and "####" in prompt
    assert env.get_wrapper_attr("instructions") == ""
    assert env.step(f"It is #### {task.answer}")[1:4] == (1, True, False)


def test_the_reward_tool_pays_every_text_and_the_conversation_grows(play):
    env, prompt, _ = play("gsm8k-tool")
    task = env.unwrapped.task
    assert prompt.startswith(task.question) and "calc_gsm8k_reward" in prompt
    right, wrong = (call(each, "calc_gsm8k_reward", "answer") for each in (task.answer, f"{task.answer}.0"))
    observation, reward, terminated, _, info = env.step(
        wrong + "<tool_call>{</tool_call>" + call("1", "other", "x") + right
    )
    assert (reward, terminated) == (1, False) and "rebuilt" not in info
    said = [message["content"] for message in observation_messages(observation, info)]
    assert [f"Reward {reward} for the answer #### {task.answer}{end}" for reward, end in ((0.0, ".0"), (1.0, ""))] == [
        said[0],
        said[2],
    ]
    assert "there is no tool 'other'" in said[1] and len(said) == 3
    assert env.step("<tool_call>{oops")[1:4] == (0, True, False)


# -- reading calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "as_json", "as_python"),
    [
        (call("x") + "<tool_call>{oops}</tool_call>", ["x"], ["x"]),  # a bad block beside a good one
        (call("x").replace('"', "'"), [], ["x"]),
        (call("x").replace('"', "'") + call("y"), ["y"], ["y"]),  # literals only where nothing is JSON
        (call("x")[: -len("</tool_call>")], [], []),
        ("<tool_call>{'name': 'f', 'arguments': {'command': '__class__'}}</tool_call>", [], []),
        ("<tool_call>{'name': 'f', 'arguments': {'command': '%s'}}</tool_call>" % ("x" * 8192), [], []),
        ("<tool_call>{'name': 'f', 'arguments': {'command': f()}}</tool_call>", [], []),
        ("<tool_call>" + "[" * 9000 + "</tool_call>", [], []),
        ("<tool_call>" * 200_000, [], []),
        (call("x") * 200, ["x"] * 100, ["x"] * 100),
    ],
)
def test_blocks_are_read_as_released(text, as_json, as_python):
    for name, commands in (("hermes_json", as_json), ("hermes_python", as_python)):
        parsed = get_parser(name).parse(text)
        assert [each.arguments["command"] for each in parsed.calls] == commands
        assert parsed.text == ("" if commands else text)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [('{"q": 1}', {"q": 1}), ("{'q': 1}", {"q": 1}), ("rome", {"": "rome"}), ([1], {"": [1]})],
)
def test_arguments_may_be_written_as_a_string(arguments, read):
    text = f"<tool_call>{json.dumps({'name': 'f', 'arguments': arguments})}</tool_call>"
    assert get_parser("hermes_python").parse(text).calls[0].arguments == read
    strict = read if arguments == '{"q": 1}' else {}  # neither literals nor bare strings
    assert get_parser("hermes_json").parse(text).calls[0].arguments == strict


# -- wording of one's own ----------------------------------------------------------------------------------------------


def test_the_wording_is_the_users_own(tmp_path):
    file = tmp_path / "prompts.toml"
    file.write_text('[mine]\nsystem = "Act."\nuser = "$goal|$recent_steps|$step"\nlabel = "BAD"\n')
    env = make_text_env(*recipe("alfworld", prompts=f"{file}:mine", size=1))
    assert env.reset(options={"index": 0})[0] == "Your task is to: put a hot egg in sinkbasin.|None|1"
    assert env.get_wrapper_attr("instructions") == "Act."
    prompt, *_, info = env.step("hm")
    assert "[Action 1]\nBAD: there is no call of a tool|2" in prompt and info["anchor"].endswith(ROOM)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p.json:mine", '{"mine": {"user": "$gaol"}}', r"has \$gaol; the placeholders are \$task"),
        ("p.json:mine", '{"mine": {"user": "5$"}}', r"a \$ without a name"),
        ("p.json:yours", '{"mine": {"user": ""}}', "must be 'mine', got 'yours'"),
        ("p.json:mine", '{"mine": {"user": "", "sytem": ""}}', "got 'sytem'. Did you mean 'system'"),
        ("p.json:mine", '{"mine": {"system": ""}}', "an object of texts with 'user'"),
        ("p.json:mine", '{"mine": ', "cannot be read"),
        ("p.json:mine", "[" * 100_000, "cannot be read"),
        ("p.json", "", "written FILE:NAME"),
        ("p.py:mine", "", "must end in .json, .toml"),
        ("q.json:mine", "", "cannot be read"),
    ],
)
def test_prompts_that_cannot_be_used(name, text, says, tmp_path):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        make_text_env(*recipe("alfworld", prompts=str(tmp_path / name), size=1))


def test_recipes_that_do_not_exist_are_named():
    for arguments, says in ((("alfwold",), "Did you mean 'alfworld'"), (("scienceworld", "steppo"), "must be 'capo'")):
        with pytest.raises(ConfigError, match=says):
            recipe(*arguments)
    assert {release for _, release in RECIPES} == set(RELEASES)


# -- all of them -------------------------------------------------------------------------------------------------------

WON = {"alfworld": 1, "webshop": 10}  # what the last step pays, and no other one pays anything
NEWEST = sorted({task for task, _ in RECIPES} - {"scienceworld"})


@pytest.mark.parametrize("task", NEWEST)
def test_experts_speak_as_released(task):
    env = make_text_env(*recipe(task))
    env.reset(options={"index": 0})
    ended, rewards = False, []
    while not ended:
        *_, reward, terminated, truncated, info = env.step(env.get_wrapper_attr("expert_action")())
        rewards.append(reward)
        ended = terminated or truncated
    assert terminated and not truncated and info["success"] and sum(rewards) >= 1 and not info["invalid_action"]
    if task in WON:
        assert rewards == [*[0] * (len(rewards) - 1), WON[task]]


@pytest.mark.parametrize("task", NEWEST)
def test_any_text_is_answered_and_every_recipe_branches(task):
    env = make_text_env(*recipe(task))
    again = gym.make(env.spec)
    for text in HOSTILE_ACTIONS:
        first = [each.reset(options={"index": 1}) for each in (env, again)]
        assert first[0] == first[1]
        point = agent_envs.snapshot(env)
        outcome = env.step(text)
        assert env.observation_space.contains(outcome[0]) and again.step(text) == outcome
        agent_envs.restore(env, point)
        assert env.step(text) == outcome


def test_a_command_line_names_a_recipe(tmp_path, capsys):
    file = tmp_path / "p.toml"
    file.write_text('[mine]\nuser = "Goal: $goal"\n')
    arguments = ["eval", "--policy", "expert", "--n", "1", "--split", "validation", "--out", str(tmp_path / "run")]
    assert main([*arguments, "--recipe", "alfworld@agent-r1", "--prompts", f"{file}:mine"]) == 0
    episode = (tmp_path / "run" / "episodes.jsonl").read_text()
    assert '"success": true' in episode and "Goal: Your task is to:" in episode
    for wrong, says in (
        (["--recipe", "alfworld", "--env", "AgentR1/ALFWorld-v0"], "either --env or --recipe"),
        (["--env", "AgentR1/ALFWorld-v0", "--prompts", "p.toml:mine"], "--prompts is for --recipe"),
        (["--recipe", "alfworld@cap"], "Did you mean 'capo'"),
    ):
        assert main([*arguments, *wrong]) == 2
        assert says in capsys.readouterr().err
