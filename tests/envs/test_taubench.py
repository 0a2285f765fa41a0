"""TauBench: released tasks from a checkout, which the tests lay out with small tables or those of recorded episodes.

1. Every recorded result of a tool is given again, and every reward but one (the recording itself is off there).
2. A checkout is data: nothing in it is run, and what is not of the form is a DataError.
3. The customer is a model behind a server; one that fails is an error, never a reward of 0.
"""

import gzip
import itertools
import json
import pickle
import re
from pathlib import Path

import gymnasium as gym
import pytest

from agent_envs.errors import BackendError, ConfigError, DataError
from agent_envs.testing import check_text_env

ID = "AgentR1/TauBench-v0"
TYPES = {"amount": "number", "total_baggages": "integer", "nonfree_baggages": "integer"}
TYPES |= dict.fromkeys(("flights", "passengers", "payment_methods", "item_ids", "new_item_ids"), "array")
ADDRESS = "address1 address2 city state country zip"
SHARED = """
calculate expression
get_user_details user_id
think thought
transfer_to_human_agents summary
"""
TOOLS = {  # a tool a line, with its arguments
    "airline": f"""{SHARED}
book_reservation user_id origin destination flight_type cabin flights passengers payment_methods total_baggages \
 nonfree_baggages insurance
cancel_reservation reservation_id
get_reservation_details reservation_id
list_all_airports
search_direct_flight origin destination date
search_onestop_flight origin destination date
send_certificate user_id amount
update_reservation_baggages reservation_id total_baggages nonfree_baggages payment_id
update_reservation_flights reservation_id cabin flights payment_id
update_reservation_passengers reservation_id passengers""",
    "retail": f"""{SHARED}
cancel_pending_order order_id reason
exchange_delivered_order_items order_id item_ids new_item_ids payment_method_id
find_user_id_by_email email
find_user_id_by_name_zip first_name last_name zip
get_order_details order_id
get_product_details product_id
list_all_product_types
modify_pending_order_address order_id {ADDRESS}
modify_pending_order_items order_id item_ids new_item_ids payment_method_id
modify_pending_order_payment order_id payment_method_id
modify_user_address user_id {ADDRESS}
return_delivered_order_items order_id item_ids payment_method_id""",
}


def lay(root, domain, tables, tasks, split="test"):
    """Write a checkout of tau-bench as far as it is read."""
    folder = Path(root, "tau_bench", "envs", domain)
    for name in ("data", "tools"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "wiki.md").write_text("# Policy\n\nHelp the customer.\n")
    for name, rows in tables.items():
        (folder / "data" / f"{name}.json").write_text(json.dumps(rows))
    for name, *arguments in map(str.split, filter(None, TOOLS[domain].splitlines())):
        properties = {each: {"type": TYPES.get(each, "string")} for each in arguments}
        schema = {"type": "object", "properties": properties, "required": arguments}
        info = {"type": "function", "function": {"name": name, "description": f"To {name}.", "parameters": schema}}
        source = f"class Own(Tool):\n    @staticmethod\n    def get_info() -> dict:\n        return {info!r}\n"
        (folder / "tools" / f"{name}.py").write_text(source)
    lines = []
    for task in tasks:
        actions = ", ".join(f"Action(name={each['name']!r}, kwargs={each['kwargs']!r})" for each in task["actions"])
        said, outputs = task["instruction"], task["outputs"]
        lines.append(f"    Task(annotator='0', instruction={said!r}, actions=[{actions}], outputs={outputs!r}),\n")
    (folder / f"tasks_{split}.py").write_text(
        f"from tau_bench.types import Action, Task\n\nTASKS = [\n{''.join(lines)}]\n"
    )
    return root


# -- 1. the recorded episodes ------------------------------------------------------------------------------------------


def records(data_dir):
    path = Path(data_dir, "taubench", "gpt-4o-airline.json.gz")
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    text = gzip.decompress(path.read_bytes()).decode().replace('\\"province\\"', '\\"state\\"')
    return json.loads(text)


def calls_of(record):
    """The calls of a recorded episode, each with its result."""
    asked = None
    for message in record["traj"]:
        if message.get("tool_calls"):
            asked = message["tool_calls"][0]["function"]
        elif message["role"] == "tool":
            yield asked["name"], json.loads(asked["arguments"]), message["content"]


def shown_tables(episodes):
    """The rows that recorded episodes show before they are changed."""
    users, reservations, flights = {}, {}, {}
    for episode in episodes:
        changed = set()
        for name, arguments, content in calls_of(episode):
            if name.startswith(("book", "update", "cancel", "send")):
                changed |= {"users", "HATHAT", "HATHAU", arguments.get("reservation_id")}
            rows = json.loads(content) if content[:1] in ("{", "[") else {}
            if name.startswith("search"):
                for flight in itertools.chain(*([row] if isinstance(row, dict) else row for row in rows)):
                    on_day = {name: flight.pop(name) for name in ("status", "available_seats", "prices")}
                    flight.pop("date", None)
                    known = flights.setdefault(flight["flight_number"], {**flight, "dates": {}})
                    known["dates"][arguments["date"]] = on_day
            elif rows and name == "get_user_details" and "users" not in changed:
                users[arguments["user_id"]] = rows
            elif rows and name == "get_reservation_details" and arguments["reservation_id"] not in changed:
                reservations[arguments["reservation_id"]] = rows
            elif off := re.fullmatch(r"Error: flight (\w+) not available on date (\S+)", content):
                flights.setdefault(off[1], {"origin": "", "destination": "", "dates": {}})
                flights[off[1]]["dates"][off[2]] = {"status": "landed"}
    return {"users": users, "reservations": reservations, "flights": dict(sorted(flights.items()))}


def replay(env, index, episode, said):
    """Play a recorded episode; returns how many results are as recorded, how many there are, and the return."""
    said[:] = [m["content"].replace("###STOP###", "[END]") for m in episode["traj"] if m["role"] == "user"]
    env.reset(options={"index": index})
    results, same, reward, done = [content for _, _, content in calls_of(episode)], 0, 0.0, False
    wanted = iter(results)
    for message in episode["traj"]:
        if message["role"] != "assistant":
            continue
        assert not done
        if message.get("tool_calls"):
            call = message["tool_calls"][0]["function"]
            action = env.unwrapped.format_call(call["name"], json.loads(call["arguments"]))
            found, paid, terminated, truncated, _ = env.step(action)
            same += plain(found) == plain(next(wanted))
        else:
            _, paid, terminated, truncated, _ = env.step(message["content"])
        reward, done = reward + paid, terminated or truncated
    assert done
    return same, len(results), reward


def plain(text):
    return json.loads(text) if text[:1] in ("{", "[") else text


def test_recorded_episodes_have_the_same_results_and_rewards(data_dir, tmp_path, monkeypatch):
    """Over the tables of a checkout beside them all do; over the rows that they show, those that need no others.

    Five episodes were cut off after 30 steps and recorded without a reward, as they are here; in one of them the tables
    are right by then.
    """
    episodes = records(data_dir)
    whole = Path(data_dir, "taubench", "tau_bench", "envs", "airline", "data")
    known = shown_tables(episodes)
    if whole.is_dir():
        known = {name: json.loads((whole / f"{name}.json").read_text()) for name in known}
    lay(tmp_path, "airline", known, [episode["info"]["task"] for episode in episodes])
    said = []
    monkeypatch.setattr("agent_envs.envs.helpdesk.llm_customer.written", lambda *asked: said.pop(0))
    env = gym.make(ID, data=str(tmp_path), model="recorded", url="http://127.0.0.1:1/v1")
    counts = [replay(env, index, episode, said) for index, episode in enumerate(episodes)]
    same, calls, _ = (sum(column) for column in zip(*counts, strict=True))
    right = sum(count[2] == episode["reward"] for count, episode in zip(counts, episodes, strict=True))
    assert (same, calls, right) == ((1164, 1164, 200) if whole.is_dir() else (1097, 1164, 184))


# -- small tables ------------------------------------------------------------------------------------------------------

R1 = {"reservation_id": "R1"}
CARD, GIFT = {"source": "credit_card", "id": "card"}, {"source": "gift_card", "id": "gift"}


def task(instruction, *actions, outputs=()):
    actions = [{"name": name, "kwargs": kwargs} for name, kwargs in actions]
    return {"instruction": instruction, "outputs": list(outputs), "actions": actions}


def address(zip_code):
    return dict(zip(ADDRESS.split(), ("1 Road", "", "Ghent", "East", "Belgium", zip_code), strict=True))


def airline(root):
    open_day = {"status": "available", "available_seats": {"economy": 1, "business": 0}}
    days = {day: {**open_day, "prices": {"economy": price}} for day, price in (("2024-05-20", 70), ("2024-05-21", 90))}
    flights = {}
    for number, origin, destination, leaves, lands in (
        ("F1", "JFK", "SEA", "06:00:00", "09:00:00"),
        ("F2", "SEA", "LAX", "12:00:00", "14:00:00"),
        ("F3", "JFK", "BOS", "20:00:00", "01:00:00+1"),
        ("F4", "BOS", "LAX", "07:00:00", "12:00:00"),
    ):
        flight = {"flight_number": number, "origin": origin, "destination": destination}
        flight |= {"scheduled_departure_time_est": leaves, "scheduled_arrival_time_est": lands}
        flights[number] = flight | {"dates": days | {"2024-05-01": {"status": "landed"}}}
    methods = {"card": CARD, "gift": {**GIFT, "amount": 50}, "paper": {"source": "certificate", "amount": 100}}
    ann = {"name": {"first_name": "Ann", "last_name": "Lee"}, "payment_methods": methods, "reservations": ["R1"]}
    flight = {"origin": "JFK", "destination": "SEA", "flight_number": "F1", "date": "2024-05-20", "price": 60}
    booked = {"reservation_id": "R1", "user_id": "ann", "cabin": "economy", "flights": [flight]}
    booked |= {"passengers": [{"first_name": "Ann"}], "payment_history": [{"payment_id": "gift", "amount": 60}]}
    booked |= {"total_baggages": 1, "nonfree_baggages": 0}
    tables = {"users": {"ann": ann}, "reservations": {"R1": booked}, "flights": flights}
    cancel = task("You are ann. Cancel R1 and ask what comes back.", ("cancel_reservation", R1), outputs=["1060"])
    transfer = task("You are ann. You want a person.", ("transfer_to_human_agents", {"summary": "a person"}))
    return lay(root, "airline", tables, [cancel, transfer])


def retail(root, split="test"):
    def variant(key, price, available=True):
        return {"item_id": key, "price": price, "available": available, "options": {"size": key}}

    variants = {each["item_id"]: each for each in (variant("i1", 10.1), variant("i2", 30.3), variant("i3", 5, False))}
    products = {"p1": {"name": "Cup", "product_id": "p1", "variants": variants}}
    methods = {"gift_card": {**GIFT, "balance": 20.0}, "card": CARD, "gift_card_2": {**GIFT, "balance": 1.0}}
    bo = {"name": {"first_name": "Bo", "last_name": "Ek"}, "email": "Bo@x.org", "address": address("9000")}
    items = [{"item_id": "i1", "product_id": "p1", "price": 10.1, "options": {}} for _ in range(2)]
    order = {"user_id": "bo", "items": items}
    order["payment_history"] = [{"transaction_type": "payment", "amount": 20.2, "payment_method_id": "gift_card"}]
    orders = {
        f"#{status}": {"order_id": f"#{status}", "status": status, **order} for status in ("pending", "delivered")
    }
    tables = {"users": {"bo": bo | {"payment_methods": methods}}, "products": products, "orders": orders}
    find = ("find_user_id_by_email", {"email": "bo@x.org"})
    cancel = ("cancel_pending_order", {"order_id": "#pending", "reason": "no longer needed"})
    return lay(root, "retail", tables, [task("You are Bo. Cancel it.", find, cancel)], split)


MODEL = {"model": "m", "url": "http://127.0.0.1:1/v1"}


def started(root, domain="airline", index=0, **arguments):
    env = gym.make(ID, data=str(root), domain=domain, **MODEL, **arguments).unwrapped
    env.reset(options={"index": index})
    return env


@pytest.fixture(autouse=True)
def agreeing(request, monkeypatch):
    """A customer who reads its brief out, agrees to everything, and leaves when it is asked nothing twice."""
    if "fake_chat" in request.fixturenames:
        return

    def written(policy, messages, what):
        before, text = ["?", *(m["content"] for m in messages if m["role"] == "user")][-2:]
        if len(messages) == 2:
            return messages[0]["content"]
        return "Yes, please." if "?" in text else "Good. Is that all?" if "?" in before else "Goodbye. [END]"

    monkeypatch.setattr("agent_envs.envs.helpdesk.llm_customer.written", written)


def call(env, name, **arguments):
    return env.step(env.format_call(name, arguments))[0]


TRIP = {"user_id": "ann", "origin": "JFK", "destination": "SEA", "flight_type": "one_way", "cabin": "economy"}
TRIP |= {"flights": [{"flight_number": "F1", "date": "2024-05-20"}], "passengers": [{"first_name": "Ann"}]}
TRIP |= {"total_baggages": 2, "nonfree_baggages": 1, "insurance": "yes", "payment_methods": []}
BAGS = R1 | {"total_baggages": 3, "nonfree_baggages": 1}
PENDING, DELIVERED = {"order_id": "#pending"}, {"order_id": "#delivered"}
BO, ALL_I1 = {"first_name": "BO", "last_name": "ek"}, ("i1",) * 3


def paying(**amounts):
    return TRIP | {"payment_methods": [{"payment_id": name, "amount": amount} for name, amount in amounts.items()]}


def fly(number, date="2024-05-20", cabin="economy", pays="card", times=1):
    return R1 | {"cabin": cabin, "flights": [{"flight_number": number, "date": date}] * times, "payment_id": pays}


def swap(old=("i1",), new=("i2",), pays="card"):
    return {"item_ids": [*old], "new_item_ids": [*new], "payment_method_id": pays}


def by(name, **more):
    return {"payment_method_id": name, **more}


BOOK, CHANGE = "book_reservation", "update_reservation_flights"
CANCEL, RETURN = "cancel_pending_order", "return_delivered_order_items"
ITEMS, REPAY = "modify_pending_order_items", "modify_pending_order_payment"
EXCHANGE = "exchange_delivered_order_items"
TOO_LITTLE = "insufficient gift card balance to pay for the"
CALLS = [  # a tool, its arguments, and what its result begins with, after "Error: "
    (BOOK, paying(), "payment amount does not add up, total price is 150, but paid 0"),
    (BOOK, paying(x=1), "payment method x not found"),
    (BOOK, paying(gift=51), "not enough balance in payment method gift"),
    (BOOK, paying(paper=100, card=50), '{"reservation_id": "HATHAT"'),
    (CHANGE, fly("F9"), "flight F9 not found"),
    (CHANGE, fly("F2", "2024-06-20"), "flight F2 not found on date 2024-06-20"),
    (CHANGE, fly("F2", "2024-05-01"), "flight F2 not available on date 2024-05-01"),
    (CHANGE, fly("F2", cabin="business"), "not enough seats on flight F2"),
    (CHANGE, fly("F2", pays="paper"), "certificate cannot be used to update reservation"),
    (CHANGE, fly("F2", pays="gift", times=2), "gift card balance is not enough"),
    (CHANGE, fly("F2", cabin="no", pays="gift"), "'no'"),
    ("update_reservation_baggages", BAGS | {"payment_id": "?"}, "payment method not found"),
    ("update_reservation_passengers", R1 | {"passengers": []}, "number of passengers does not match"),
    ("send_certificate", {"user_id": "ann", "amount": 50}, "Certificate certificate_3221322 added to user ann with"),
    ("get_user_details", {"user_id": "who"}, "user not found"),
    ("cancel_reservation", {"reservation_id": "R9"}, "reservation not found"),
    ("calculate", {"expression": "(2 + 1) * 1.5"}, "4.5"),
    ("calculate", {"expression": "__import__('os')"}, "invalid characters in expression"),
    ("calculate", {"expression": "9**9**9**9"}, "at position 5: the power is too large"),
    ("think", {"thought": "hm"}, ""),
    (CANCEL, DELIVERED | {"reason": "no longer needed"}, "non-pending order cannot be cancelled"),
    (CANCEL, PENDING | {"reason": "bored"}, "invalid reason"),
    (EXCHANGE, PENDING | swap(), "non-delivered order cannot be exchanged"),
    (EXCHANGE, DELIVERED | swap(ALL_I1, ("i2",) * 3), "i1 not found"),
    (EXCHANGE, DELIVERED | swap(new=()), "the number of items to be exchanged should match"),
    (EXCHANGE, DELIVERED | swap(new=("i3",)), "new item i3 not found or available"),
    (EXCHANGE, DELIVERED | swap(pays="x"), "payment method not found"),
    (EXCHANGE, DELIVERED | swap(pays="gift_card_2"), f"{TOO_LITTLE} price difference"),
    (ITEMS, PENDING | swap(pays="gift_card"), f"{TOO_LITTLE} new item"),
    (REPAY, PENDING | by("gift_card"), "the new payment method should be different from the current one"),
    (REPAY, PENDING | by("gift_card_2"), f"{TOO_LITTLE} order"),
    ("modify_pending_order_address", DELIVERED | address("1"), "non-pending order cannot be modified"),
    (RETURN, DELIVERED | by("card", item_ids=["i1"]), "payment method should be either the original payment method or"),
    (RETURN, DELIVERED | by("gift_card_2", item_ids=["i9"]), "some item not found"),
    ("find_user_id_by_email", {"email": "bo@X.org"}, "bo"),
    ("find_user_id_by_name_zip", BO | {"zip": "9000"}, "bo"),
    ("find_user_id_by_name_zip", BO | {"zip": "9001"}, "user not found"),
    ("list_all_product_types", {}, '{"Cup": "p1"}'),
    ("get_product_details", {"product_id": "p9"}, "product not found"),
    ("get_order_details", {"order_id": "pending"}, "order not found"),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return retail(airline(tmp_path_factory.mktemp("checkout")))


@pytest.mark.parametrize(("name", "arguments", "result"), CALLS)
def test_what_a_tool_answers(checkout, name, arguments, result):
    domain = "airline" if f"\n{name}" in TOOLS["airline"] else "retail"
    assert call(started(checkout, domain), name, **arguments).removeprefix("Error: ").startswith(result)


def test_changes_of_a_reservation_are_paid_and_kept(checkout):
    env = started(checkout)
    changed = json.loads(call(env, CHANGE, **fly("F2") | {"flights": TRIP["flights"] + fly("F2")["flights"]}))
    assert [flight["price"] for flight in changed["flights"]] == [60, 70]  # the first keeps what was paid for it
    assert changed["payment_history"][-1] == {"payment_id": "card", "amount": 70}
    bags = {"total_baggages": 2, "nonfree_baggages": 1, "payment_id": "gift"}
    assert json.loads(call(env, "update_reservation_baggages", **R1, **bags))["total_baggages"] == 2
    assert json.loads(call(env, "get_user_details", user_id="ann"))["payment_methods"]["gift"]["amount"] == 0
    cancelled = json.loads(call(env, "cancel_reservation", **R1))
    assert [paid["amount"] for paid in cancelled["payment_history"]] == [60, 70, 50, -60, -70, -50]
    env.reset(options={"index": 0})  # and the next episode finds the shop as it was
    assert json.loads(call(env, "get_reservation_details", **R1))["payment_history"] == [
        {"payment_id": "gift", "amount": 60}
    ]


def test_flights_are_found_with_one_stop(checkout):
    env = started(checkout)
    asked = {"origin": "JFK", "destination": "LAX", "date": "2024-05-20"}
    assert call(env, "search_direct_flight", **asked) == "[]"
    ways = json.loads(call(env, "search_onestop_flight", **asked))
    assert [[(flight["flight_number"], flight["date"]) for flight in way] for way in ways] == [
        [("F1", "2024-05-20"), ("F2", "2024-05-20")],
        [("F3", "2024-05-20"), ("F4", "2024-05-21")],
    ]
    assert ways[1][1]["prices"] == {"economy": 70}  # of the first day, as released
    assert call(env, "search_onestop_flight", **{**asked, "date": "soon"}).startswith("Error: invalid literal")


def test_changes_of_an_order_are_paid_and_kept(checkout):
    env = started(checkout, "retail")
    order = json.loads(call(env, REPAY, **PENDING, **by("card")))
    assert [paid["transaction_type"] for paid in order["payment_history"]] == ["payment", "payment", "refund"]
    again = call(env, REPAY, **PENDING, **by("gift_card_2"))
    assert again == "Error: there should be exactly one payment for a pending order"
    order = json.loads(call(env, ITEMS, **PENDING, **swap(pays="gift_card")))
    assert [item["item_id"] for item in order["items"]] == ["i2", "i1"] and order["status"] == "pending (item modified)"
    user = json.loads(call(env, "modify_user_address", user_id="bo", **address("8000")))
    assert (user["address"]["zip"], user["payment_methods"]["gift_card"]["balance"]) == ("8000", 20.0)
    order = json.loads(call(env, RETURN, **DELIVERED, **by("gift_card", item_ids=["i1"])))
    assert (order["status"], order["return_items"]) == ("return requested", ["i1"])


@pytest.mark.parametrize("domain", ["airline", "retail"])
def test_it_keeps_the_contract_and_its_expert_solves_all(checkout, play, domain):
    arguments = {"data": str(checkout), "domain": domain, **MODEL}
    check_text_env(ID, env_kwargs=arguments, vectors=False)
    env = gym.make(ID, **arguments)
    for index in range(env.unwrapped.num_tasks):
        reward, _, info = play(env, index)
        assert reward == 1 and info["reward_components"] == {"tables": 1, "outputs": 1}
    retail(checkout, "train")
    assert gym.make(ID, **arguments | {"domain": "retail", "split": "train"})


@pytest.mark.parametrize(
    ("actions", "right"),
    [
        (["1,060 come back.", "Bye."], {"tables": 0, "outputs": 1}),  # nothing was done
        ([R1, "Done.", "Bye."], {"tables": 1, "outputs": 0}),  # it was not said
        ([R1, R1, "1060", "Bye."], {"tables": 0, "outputs": 1}),  # twice is once too often
        ([R1, "1,060 come back.", "Bye."], {"tables": 1, "outputs": 1}),
    ],
)
def test_the_reward_is_for_tables_and_outputs(checkout, actions, right):
    env = started(checkout)
    for action in actions:
        action = action if isinstance(action, str) else env.format_call("cancel_reservation", action)
        _, reward, terminated, _, info = env.step(action)
    assert terminated and info["reward_components"] == right and reward == float(all(right.values()))


def test_snapshots_and_pickles_go_on_with_the_same_tables(checkout):
    env = started(checkout)
    before = env.snapshot()
    call(env, "cancel_reservation", **R1)
    copy = pickle.loads(pickle.dumps(env))
    env.restore(before)
    assert "status" not in json.loads(call(env, "get_reservation_details", **R1))
    assert json.loads(call(copy, "get_reservation_details", **R1))["status"] == "cancelled"


@pytest.mark.parametrize(
    "arguments",
    [
        TRIP | {"nonfree_baggages": 10**4000},
        TRIP | {"payment_methods": [{"payment_id": "card", "amount": 1e308}] * 2},
        TRIP | {"payment_methods": [{}], "flights": [{}] * 1000},
        TRIP | {"payment_methods": [7], "flights": []},
        TRIP | {"user_id": "../../etc"},
    ],
)
def test_no_call_breaks_an_episode(checkout, arguments):
    env = started(checkout)
    assert call(env, "book_reservation", **arguments).startswith(("Error: ", "error: "))
    call(env, "update_reservation_baggages", **R1, total_baggages=1, nonfree_baggages=10**4200, payment_id="card")
    assert env.restore(env.snapshot()) and not env.step("Bye.")[2] and env.step("Bye.")[2]


# -- 2. a checkout is data ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("tasks_test.py", "TASKS = [Task(instruction=__import__('os').name, actions=[])]", "expected literals"),
        ("tasks_test.py", "import os\nos.abort()", "expected a list of tasks"),
        (
            "tasks_test.py",
            "TASKS = [Task(instruction='x', actions=[{'name': 'think', 'kwargs': {'a': {1}}}])]",
            "expected literals",
        ),
        ("tasks_test.py", "TASKS = [Task(instruction='x')]", "task 0: expected a list under 'actions'"),
        ("tasks_test.py", "TASKS = [" + "(" * 5000, "cannot be parsed"),
        ("tasks_test.py", "TASKS = [" + "-" * 5000 + "1]", "cannot be parsed|expected literals"),
        ("tools/think.py", "open('/tmp/x', 'w')", "expected a tool with a function get_info"),
        ("tools/think.py", "def get_info():\n    return f()", "expected a function"),
        ("tools/think.py", "def get_info():\n    return {'function': {'parameters': {'type': 3}}}", "description"),
        (
            "tools/think.py",
            "def get_info():\n    return {'function': {'description': 'x'}}",
            "expected parameters, got None",
        ),
        (
            "tools/think.py",
            "def get_info():\n    return {'function': {'description': 'x', 'parameters': {'type': 3}}}",
            "think",
        ),
        ("data/users.json", "[]", "expected an object of rows by id"),
        ("wiki.md", None, "cannot be read"),
    ],
)
def test_what_is_not_of_the_form_is_said(tmp_path, file, text, message):
    path = airline(tmp_path) / "tau_bench" / "envs" / "airline" / file
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises((ConfigError, DataError), match=message):
        started(tmp_path)


def test_what_is_wrong_with_an_argument_is_said(tmp_path):
    airline(tmp_path)
    for arguments, message in (
        ({}, "data must be the folder of a checkout"),
        ({"data": str(tmp_path)}, "model must name the model"),
        ({"data": str(tmp_path), **MODEL, "split": "train"}, "split of airline"),
        ({"data": str(tmp_path), "domain": "../retail"}, "domain must be one of"),
    ):
        with pytest.raises(ConfigError, match=message):
            gym.make(ID, **arguments)
    with pytest.raises(DataError, match="cannot be read"):
        gym.make(ID, data=str(tmp_path / "other"), **MODEL)


# -- 3. customers ------------------------------------------------------------------------------------------------------


def test_a_model_plays_the_customer(tmp_path, fake_chat):
    said = ["<think>I am Ann.</think>Hello, cancel R1.", "Yes.", "[END]", ""]
    server = fake_chat.ChatServer(lambda request: said.pop(0))
    env = gym.make(ID, data=str(airline(tmp_path)), model="m", url=server.url)
    base = env.unwrapped
    assert env.reset(options={"index": 0})[0] == "Hello, cancel R1."
    before = base.snapshot()
    assert base.step("Shall I?")[0] == "Yes." and base.step(base.expert_action())[4]["speaker"] == "tools"
    observation, reward, terminated, _, info = base.step("Done: 1,060 come back.")
    assert (observation, reward, terminated) == ("Thank you, goodbye.", 1.0, True) and info["speaker"] == "customer"
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "Cancel R1 and ask" in server.requests[0]["messages"][0]["content"]
    copy = pickle.loads(pickle.dumps(base))
    copy.restore(before)
    with pytest.raises(BackendError, match="the customer by model 'm'"):  # a customer that says nothing
        copy.step("Shall I?")
    server.close()
    with pytest.raises(BackendError):
        copy.voice.policy.server.max_retries = 0
        copy.step("Shall I?")
