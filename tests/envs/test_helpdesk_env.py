"""HelpDesk by scripted episodes: the customer's rules, the reward, and what holds for every domain and level.

1. Everybody who makes the right calls and offers solves every task, whatever else is said: the expert, and agents whose
   other texts are noise, paraphrases, terse or everything at once. Nobody else does.
2. Letters settle, words do not; a yes says what it is to; no reply comes twice running; only what is true is said.
3. The score: each thing that is missing or too much costs; progress telescopes; conduct counts.
4. Tools: what the rules forbid is carried out, what the system refuses is not; other rows, other texts.
"""

import itertools
import json
import pickle
import random
import re
import tracemalloc

import gymnasium as gym
import pytest

from agent_envs.datasets.helpdesk.generated.domain import domain_names, load_domain
from agent_envs.datasets.helpdesk.generated.solving import Deed
from agent_envs.envs.helpdesk.devices import told_and_asked
from agent_envs.envs.helpdesk.expert import MISTAKES, next_move
from agent_envs.envs.helpdesk.hearing import hear
from agent_envs.envs.helpdesk.reward import score_of
from agent_envs.errors import ConfigError

ENV = "AgentR1/HelpDesk-v0"
UNSEEN = [name for name in domain_names() if load_domain(name).unseen]


def make(**kwargs):
    return gym.make(ENV, **kwargs)


def is_call(text):
    return "<tool_call>" in text


def ended(env):
    """Play on to the end as the expert does; return the last step."""
    while not (step := env.step(env.expert_action()))[2]:
        pass
    return step


def play(env, index=0, change=lambda text, env: text, limit=400):
    """Play a task with the expert's actions, changed; return the last step's values and all replies of the customer."""
    said = [env.reset(options={"index": index})[0]]
    base = env.unwrapped
    for _ in range(limit):
        observation, reward, terminated, _, info = base.step(change(base.expert_action(), base))
        said += [observation] if info["speaker"] == "customer" else []
        if terminated:
            break
    return reward, terminated, info, said


# -- 1. everybody who makes the right calls and offers ---------------------------------------------------------------

NOISE = ("hm", "blue", "It is a fine day.", "ok", "Let me see.", "What?", "la la la", "...", "12345", "Yes.", "No!")
TERSE = {"name": "name? code?", "refuse": "no", "report": "done", "doubt": "number? not found"}


def noise(text, env):
    """Replace what is neither a call nor an offer by noise."""
    device = env.domain.device
    keep = is_call(text) or hear(text, env.domain, None, {}).offer or (device and told_and_asked(text, device)[0])
    return text if keep else NOISE[len(env.state.mind.last) % len(NOISE)]


def terse(text, env):
    if is_call(text):
        return text
    heard = hear(text, env.domain, None, {})
    if heard.offer:
        return f"{' '.join(re.findall('[0-9]+ euros', text))} go ahead?"
    return TERSE.get("name" if "name" in heard.asks else heard.names(), text)


WORDINGS = {
    "name": ("Who am I speaking to, and what is the code word?", "May I have your name and your code word first?",
             "Before we start: your full name and your code word, please.", "I need your name. And the code word?"),
    "offer": ("Would you like me to do that?", "May I go ahead?", "Are you happy for me to proceed?",
              "Do you want me to go ahead with this?", "I can do that for you now. Is that OK?"),
    "refuse": ("Our rules do not permit that.", "I cannot do that for you.", "That is not possible, I am afraid."),
    "report": ("That is all set now.", "I have done it.", "It has been taken care of."),
    "doubt": ("I cannot find this number, is it right?", "No such number exists here. Which is it?"),
}  # fmt: skip


def paraphrase(text, env):
    heard = hear(text, env.domain, None, {})
    key = "name" if "name" in heard.asks else "offer" if heard.offer else heard.names()
    if is_call(text) or key not in WORDINGS:
        return text
    amount = "".join(f"That makes {found}. " for found in re.findall("[0-9]+ euros", text))
    return amount + WORDINGS[key][env.state.mind.texts % len(WORDINGS[key])]


def all_at_once(text, env):
    if is_call(text):
        return text
    return f"Thank you for waiting! {text} Could you also tell me your name, your code word and the number? Goodbye."


AGENTS = {
    "expert": lambda text, env: text,
    "noise": noise,
    "terse": terse,
    "paraphrase": paraphrase,
    "all at once": all_at_once,
    "loud": lambda text, env: text if is_call(text) else text.upper(),
}


@pytest.mark.parametrize("level", [2, 5, 8])
@pytest.mark.parametrize("agent", AGENTS)
def test_whoever_makes_the_right_calls_and_offers_solves_every_task(agent, level):
    for split in ("train", "new"):
        env = make(level=level, split=split)
        for index in range(3):
            reward, terminated, info, said = play(env, index, AGENTS[agent])
            task = env.unwrapped.task
            assert terminated and reward == 1 and info["success"], (task.task_id, said[-3:])
            assert env.unwrapped.state.mind.texts <= task.patience
            assert all(one != other for one, other in itertools.pairwise(said))


CHANCE = random.Random(0)


def at_random(text, env):
    """Call any tool with what there is, or say anything."""
    rng, rows = CHANCE, env.task.rows
    there = [*rows["customer"], *rows["item"], *rows["catalogue"], *(row["name"] for row in rows["customer"].values())]
    spec = rng.choice(env.tools)["function"]
    arguments = {"act": rng.choice([*env.domain.acts]), "rule": f"2.{rng.randint(1, 4)}"}
    for name, schema in spec["parameters"]["properties"].items():
        values = schema["description"].removeprefix("One of ").split(", ")
        value = rng.choice(there if schema["description"] == values[0] else values)
        arguments.setdefault(name, int(value) if schema["type"] == "integer" and value.isdigit() else value)
    call = env.format_call(spec["name"], {name: arguments[name] for name in spec["parameters"]["properties"]})
    return rng.choice(
        [call, call, rng.choice(NOISE), "Could you tell me your name and code word?", "Shall I go ahead?"]
    )


IDLERS = {
    "claims": lambda text, env: "Yes, it is done. Shall I go ahead?",
    "refuses": lambda text, env: "Name and code word?" if env.state.mind.texts % 2 else "That cannot be done.",
    "random": at_random,
}


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("idler", IDLERS)
def test_who_says_or_calls_anything_solves_nothing(idler, level):
    env = make(level=level)
    assert not any(play(env, index, IDLERS[idler], limit=60)[0] for index in range(6))


@pytest.mark.parametrize("level", [1, 3, 6])
def test_who_does_not_wait_for_a_yes_solves_tasks_without_a_change_alone(level):
    env, solved = make(level=level), 0
    for index in range(24):
        reward = play(env, index, lambda text, env: env._written(next_move(env._customer(), "yes")))[0]
        assert reward == 0 or all(deed.kind != "act" for deed in env.unwrapped.task.solution.deeds)
        solved += reward
    assert solved <= 16


@pytest.mark.parametrize("name", domain_names())
def test_every_domain_is_solved_at_every_level_and_in_plain_talk(name):
    split = "new" if name in UNSEEN else "test"
    for talk in ("varied", "plain"):
        env = make(level="1-8", domains=name, split=split, talk=talk)
        for index in range(3):
            reward, _, info, _ = play(env, index)
            assert reward == 1 and info["task_family"] == name


@pytest.mark.parametrize("level", [1, 3, 7])
def test_an_expert_that_says_its_reasons_says_each_rule_and_the_one_that_forbids(level):
    """The reasons are not said to the customer, and whoever reads the answers in them judges as the expert does."""
    judged = 0
    for index in range(4):
        env = make(level=level, expert="reasons").unwrapped
        env.reset(options={"index": index})
        terminated = False
        while not terminated:
            action = env.expert_action()
            thought, _, act = action.rpartition("</think>\n")
            answers = re.findall(r"^(\d+\.\d+)( against \d+\.\d+)?: .*, (yes|no)\.$", thought, re.M)
            if thought and env._customer().wish:
                chains = []
                for rule, against, holds in answers:
                    chains += [] if against else [(rule, [])]
                    chains[-1][1].append(holds == "yes")
                barring = [rule for rule, links in chains if [*links, False].index(False) % 2]
                assert (f"Rule {barring[0]} forbids it." if barring else "No rule forbids it.") in thought
                assert not barring or f'"rule": "{barring[0]}"' in act
                judged += 1
            _, reward, terminated, _, info = env.step(action)
            assert "think" not in env.state.mind.last
        assert reward == 1 and info["success"]
    assert judged >= 4


# -- 2. the customer -------------------------------------------------------------------------------------------------


def first(env, test, **wanted):
    """Start the first task whose first wish has what is wanted, and whose first request and right deed pass a test."""
    for index in range(500):
        env.reset(options={"index": index})
        task = env.unwrapped.task
        request, deed = task.requests[0], task.solution.deeds[0]
        if test(request, deed) and all(getattr(request.wishes[0], name) == value for name, value in wanted.items()):
            return request
    raise AssertionError("no such task")


def wished(env, kind, test=lambda request: True, **wanted):
    """Start the first task whose first request passes a test and calls for a kind of deed; return its first wish."""
    return first(env, lambda request, deed: deed.kind == kind and test(request), **wanted).wishes[0]


def by_number(request):
    return request.named == "number"


def until(env, stop):
    """Play as the expert does until its next action is one to stop at; return that action."""
    while not stop(action := env.unwrapped.expert_action()):
        env.step(action)
    return action


def offering(text):
    return not is_call(text) and bool(re.search("hall I|all right", text))


def test_done_without_a_letter_is_not_believed_and_cannot_without_one_neither():
    env = make(level=1)
    wished(env, "act")
    until(env, offering)
    assert re.search("not see it yet|no letter about it", env.step("It is done.")[0])
    assert re.search("really not be done|Is that final", env.step("That is not possible, rule 2.1 forbids it.")[0])
    for text in ("Yes, it is done. Shall I go ahead?", "Goodbye!", "Done."):
        wished(env, "act")
        for _ in range(50):
            if env.unwrapped.step(text)[2]:
                break
            assert env.unwrapped.state.mind.request == 0


def test_a_yes_says_what_it_is_to_and_a_contradiction_is_corrected():
    env = make(level=3, domains="bicycle_hire")
    wish = wished(env, "act", by_number, act="move_hire")
    until(env, offering)
    other = {2: 3, 3: 4, 4: 7, 7: 2}[wish.asks["days"]]
    reply = env.step(f"Shall I move hire {wish.item} by {other} days?")[0]
    assert reply.startswith("No") and f"by {wish.asks['days']} days" in reply and not env.unwrapped.state.desk.agreed
    reply = env.step("Shall I go ahead?")[0]
    assert reply.startswith("Yes") and wish.item in reply and f"by {wish.asks['days']} days" in reply


@pytest.mark.parametrize("question", ["Would you like to try something different?", "Is that okay for you?"])
def test_what_was_refused_is_not_agreed_to_by_the_way(question):
    env = make(level=8)
    wish = wished(env, "decline", pleas=2)
    env.step(until(env, lambda action: "decline" in action))
    reply = env.step(f"I am sorry, that cannot be done. {question}")[0]
    assert "Yes" not in reply and not env.unwrapped.state.desk.agreed
    assert "Yes" in env.step(f"Shall I {env.unwrapped.domain.acts[wish.act].verbs[0]} {wish.item} after all?")[0]


def test_a_question_that_has_it_right_is_answered_with_yes():
    env = make(level=1)
    wish = wished(env, "act", by_number)
    base = env.unwrapped
    name = base.task.rows["customer"][base.task.customer]["name"]
    for question, fact in ((f"Is your name {name}?", "name"), (f"Do you mean {wish.item}?", "number")):
        assert re.search("[Tt]hat is right|Yes, it is", env.step(question)[0])
        assert fact in base.state.mind.told and not base.state.desk.agreed


def test_a_question_and_an_offer_in_one_text_are_both_answered():
    env = make(level=1)
    wished(env, "act")
    reply = env.step("What is your code word? And shall I go ahead?")[0]
    assert "Yes" in reply and env.unwrapped.task.codes[env.unwrapped.task.customer] in reply


def test_a_misread_number_is_put_right_when_it_is_doubted_or_after_three_fruitless_texts():
    env = make(level=4, domains="bicycle_hire")
    for texts in (["I find no hire with this number."], ["hm", "hm", "hm"]):
        wish = first(env, lambda request, deed: request.misread).wishes[0]
        for text in texts:
            assert wish.item not in env.unwrapped.state.mind.last
            reply = env.step(text)[0]
        assert wish.item in reply


def test_whoever_says_anything_is_told_everything_in_time():
    for level in (1, 3, 6):
        env = make(level=level)
        for index in range(10):
            env.reset(options={"index": index})
            mind, request = env.unwrapped.state.mind, env.unwrapped.task.requests[0]
            seen = env.unwrapped.domain.device.reads if request.trouble else ()
            asked = ("number", *request.wishes[0].asks) if request.wishes and not request.trouble else seen
            facts = {"name", "code", *asked}
            for _ in range(2 * len(facts) + 2):
                env.step("hm")
            assert facts <= set(mind.told) and not mind.over


def test_an_amount_is_understood_once_and_many_numbers_are_no_answer():
    env = make(level=4)
    wished(env, "act", lambda request: not request.dropped, question=True, change={})
    base = env.unwrapped
    until(env, offering)
    assert re.search("Which of these", env.step("It is 1 euros, 2 euros, 3 euros or 4 euros.")[0])
    assert not base.state.mind.beliefs
    assert "5 euros" in env.step("That comes to 5 euros.")[0]
    right = base.task.solution.deeds[0]
    name = base.domain.acts[right.act].amount.name
    env.step(f"Excuse me: the {base.domain.acts[right.act].amount.words[0]} is {right.arguments[name]} euros.")
    assert list(base.state.mind.beliefs.values()) == [right.arguments[name]]


def test_a_changed_mind_and_a_dropped_request_come_with_the_first_offer():
    env = make(level=6)
    for drawn in (lambda request: any(wish.change for wish in request.wishes), lambda request: request.dropped):
        index = next(index for index, task in enumerate(env.unwrapped.tasks) if any(map(drawn, task.requests)))
        said = play(env, index)[3]
        assert any(re.search("changed my mind|thought better|Wait, let me", text) for text in said)


def test_only_what_is_true_is_said():
    """Every number of five digits and every date that a customer says is its own, but for the misread ones."""
    for level in (2, 4, 7):
        env = make(level=level)
        for index in range(10):
            said = " ".join(play(env, index, noise)[3])
            task = env.unwrapped.task
            own = {row["id"][-5:] for row in task.rows["item"].values()} | {r.misread[-5:] for r in task.requests}
            assert set(re.findall(r"\b[A-Z](\d{5})\b", said)) <= own


def test_it_ends_when_patience_does():
    env = make(level=1)
    env.reset(options={"index": 0})
    steps = 1
    while not (last := env.step("hm"))[2]:
        steps += 1
    assert steps == env.unwrapped.task.patience and last[1] == 0 and not last[4]["success"]


def test_it_is_truncated_when_steps_end():
    env = make(level=1, domains="bicycle_hire")
    env.reset(options={"index": 0})
    steps = [env.step(env.unwrapped.format_call("get_hire", {"id": "H1"})) for _ in range(120)]
    assert [step[2:4] for step in steps] == [(False, False)] * 119 + [(False, True)]
    assert not any(step[1] for step in steps) and not steps[-1][4]["success"]


def test_a_voice_is_taken_if_it_says_the_same(fake_chat):
    """A model that changes a value, or adds one, is not heard; what is heard stays the scripted customer's."""
    changes = {
        "kept": lambda said: f"Well, er: {said}",
        "wrong": lambda said: re.sub(r"\d", "0", said) + " 77",
        "turned": lambda said: f"No! {said}",
    }
    scripted = make(level=4, domains="bicycle_hire")
    for change in changes:
        server = fake_chat.ChatServer(
            lambda asked, change=change: changes[change](asked["messages"][-1]["content"].partition("\n\n")[2])
        )
        env = make(level=4, domains="bicycle_hire", customer="voiced", model="m", url=server.url)
        said = [each.reset(options={"index": 0})[0] for each in (env, scripted)]
        while not (over := env.step(scripted.unwrapped.expert_action()))[2]:
            said += over[0], scripted.step(scripted.unwrapped.expert_action())[0]
        assert over[1] == 1
        heard = [voice for voice, words in zip(said[::2], said[1::2], strict=True) if voice != words]
        assert bool(heard) is (change == "kept") and all(voice.startswith("Well, er: ") for voice in heard)
        server.close()


# -- the device ------------------------------------------------------------------------------------------------------

ROUTER = load_domain("home_internet").device
PRESSES = {
    "Could you plug the cable in, please?": "plug_in",
    "Now push in the cable and then switch on the router.": "plug_in power_on",
    "1. Turn the router on\n2. Set router mode": "power_on router_mode",
    "Reset the router.": "reset",
    "Do not reset the router.": "",
    "You may not reset the router.": "",
    "Before you plug in the cable, tell me what the light does.": "",
    "Should you plug in the cable, the light will blink.": "",
    "I have switched on the router.": "",
    "Is the router switched on?": "",  # a question about it
    "The cable is plugged in.": "",
    "Please press the wireless button on the router to enable the wireless.": "wireless_on",  # and not the router
    "Now hold the reset button down.": "reset",
    "Could you say whether the cable is plugged in?": "",
    "Got it, the router is switched on.": "",
    "An orange light usually means the router is switched off. What does it do?": "",
    "hm": "",
}
VIEWS = {
    "What does the power light do?": "light",
    "How does the cable sit, and which mode does the setup page show?": "cable page",
    "Please look at the wireless light.": "antenna",
    "Is the lamp on?": "light",
    "Could you describe the lamp, and whether the cable is plugged in?": "light cable",
    "And the Wi-Fi, is it on?": "antenna",
    "I do not know.": "",
}


@pytest.mark.parametrize("text", PRESSES)
def test_what_a_customer_is_told_to_do(text):
    assert told_and_asked(text, ROUTER)[0] == PRESSES[text].split()


@pytest.mark.parametrize("text", VIEWS)
def test_what_a_customer_is_asked_to_look_at(text):
    assert told_and_asked(text, ROUTER)[1] == VIEWS[text].split()


def trouble(env, test):
    """Start the first task that begins with a trouble and passes a test."""
    return first(env, lambda request, deed: request.trouble and test(request, deed))


def test_what_loses_something_is_asked_back_about_and_costs_if_it_is_done():
    env = make(level=5, domains="home_internet")
    trouble(env, lambda request, deed: deed.kind == "press")
    base = env.unwrapped
    assert "something is lost" in env.step("Please reset the router.")[0]
    assert not base.state.desk.diff() and base.state.mind.pending == "reset"
    assert "The power light is" in env.step("Wait. What does the power light do?")[0]
    env.step("Please reset the router.")
    env.step("Yes, please do.")
    assert base.state.desk.diff()["device", "device", "settings"] == "factory"
    last = ended(base)
    assert last[1] == 0 and 0 < last[4]["score"] < 1


def test_what_is_asked_beside_what_is_to_be_done_is_answered():
    env = make(level=5, domains="home_internet")
    trouble(env, lambda request, deed: deed.kind == "press")
    said = env.step("Please plug in the cable and then tell me what the power light does.")[0]
    assert "plugged the cable in" in said and "The power light is" in said
    assert "The cable" not in env.step("Could you plug in the cable?")[0]


def test_a_barred_remedy_is_noted_and_one_that_was_not_really_done_shows():
    env = make(level=5, domains="home_internet")
    trouble(env, lambda request, deed: deed.kind == "decline")
    assert play(env, env.unwrapped._index)[0] == 1
    env = make(level=7, domains="home_internet")
    request = trouble(env, lambda request, deed: request.slack == request.wishes[0].act and deed.kind == "press")
    base, act = env.unwrapped, env.unwrapped.domain.device.acts[request.slack]
    for times in range(2):
        assert act.say in env.step(f"Please {act.verbs[0]} {act.object}.")[0]
        assert bool(base.state.desk.diff()) is bool(times)


# -- 3. the score ----------------------------------------------------------------------------------------------------


def test_every_missing_entry_and_every_one_too_many_costs():
    env = make(level=6)
    for index in range(6):
        assert play(env, index)[0] == 1
        gold, desk, beliefs = env.unwrapped._gold, env.unwrapped.state.desk, env.unwrapped.state.mind.beliefs
        assert score_of(gold, desk, beliefs).score == 1
        for cell in gold.changes:
            before, now = desk.before[cell], desk.tables[cell[0]][cell[1]].get(cell[2])
            desk.tables[cell[0]][cell[1]][cell[2]] = before
            assert not score_of(gold, desk, beliefs).perfect
            desk.tables[cell[0]][cell[1]][cell[2]] = now
        for place, letter in enumerate(desk.letters):
            if letter.kind != "act":
                desk.letters[place] = letter._replace(rule="9.9")
                wrong = score_of(gold, desk, beliefs)
                assert not wrong.perfect and wrong.score < 1 - 1 / len(gold)  # missing, and one too many
                desk.letters[place] = letter
        for key in gold.told:
            assert not score_of(gold, desk, {**beliefs, key: -1}).perfect
        desk.letters.append(Deed("decline", "x", "y", rule="2.1"))
        assert not score_of(gold, desk, beliefs).perfect
        desk.letters.pop()
        desk.faults.append("fault")
        assert not score_of(gold, desk, beliefs).perfect
        desk.faults.pop()
        desk.letters += desk.letters[:1]  # a note twice is one
        assert score_of(gold, desk, beliefs).perfect or desk.letters[0].kind == "act"


@pytest.mark.parametrize("mistake", [None, *MISTAKES])
def test_progress_pays_the_final_score_and_mistakes_cost(mistake):
    env, lost = make(level=5, reward="progress"), 0
    for index in range(15):
        env.reset(options={"index": index})
        base, total, terminated = env.unwrapped, 0.0, False
        while not terminated:
            action = base._written(next_move(base._customer(), mistake or ""))
            _, reward, terminated, _, info = base.step(action)
            total += reward
        assert total == pytest.approx(info["score"]) and 0 <= info["score"] <= 1
        lost += info["score"] < 1
    assert lost == 0 if mistake is None else lost >= 3


# -- 4. tools and texts ----------------------------------------------------------------------------------------------


def test_tools_do_what_rules_forbid_and_not_what_the_system_refuses():
    env = make(level=1, domains="bicycle_hire")
    wish = wished(env, "decline", act="cancel_hire")
    base = env.unwrapped
    call = base.format_call("cancel_hire", {"id": wish.item, **wish.asks})
    result = json.loads(env.step(call)[0])
    assert result == {"id": wish.item, "status": "cancelled"}
    assert base.state.desk.faults == ["acted before the code word was checked", "changed without a yes"]
    observation, _, _, _, info = env.step(call)
    assert "the system refuses: status is cancelled" in observation and info["invalid_action"]
    for arguments in ({"reason": "x"}, {"refund": 10**30}, {"refund": -1}):
        assert env.step(base.format_call("cancel_hire", {"id": wish.item, **wish.asks, **arguments}))[4][
            "invalid_action"
        ]
    assert not env.step(base.format_call("get_hire", {"id": "H1"}))[4]["invalid_action"]
    observation = env.step(base.format_call("decline", {"id": wish.item, "act": "fly", "rule": "2.1"}))[0]
    assert "there is no act 'fly'" in observation
    names = {spec["function"]["name"] for spec in base.tools}
    assert {"find_member", "verify", "list_hires", "get_hire", "get_bike", "decline", "transfer"} <= names


def test_instructions_and_tools_follow_the_task_through_snapshots_and_pickles():
    env = make(domains="bicycle_hire,gym", level=1)
    base, found = env.unwrapped, {}
    assert base.instructions and base.tools
    for index in range(30):
        env.reset(options={"index": index})
        found[base.task.domain] = (index, base.snapshot(), base.instructions, json.dumps(base.tools))
    assert set(found) == {"bicycle_hire", "gym"}
    for index, snapshot, instructions, tools in found.values():
        base.restore(snapshot)
        assert (base._index, base.instructions, json.dumps(base.tools)) == (index, instructions, tools)
        copy = pickle.loads(pickle.dumps(base))
        assert (copy.instructions, json.dumps(copy.tools)) == (instructions, tools)
        assert ended(copy)[1] == 1


def test_further_environments_and_resets_take_little_memory():
    def play_all(env):
        for index in range(20):
            env.reset(options={"index": index})

    play_all(make())
    tracemalloc.start()
    try:
        envs = [make() for _ in range(10)]
        for env in envs:
            play_all(env)
        many = tracemalloc.get_traced_memory()[0]
        assert many / len(envs) < 50_000
        for _ in range(5):
            play_all(envs[0])
        assert tracemalloc.get_traced_memory()[0] - many < 20_000
    finally:
        tracemalloc.stop()


# -- 5. what mishearing may never cost ---------------------------------------------------------------------------------


def asked_for_an_amount(level=4, **kwargs):
    """Return an environment up to the offer of a wish whose customer asks for an amount, and the amount."""
    env = make(level=level, **kwargs)
    for index in range(200):
        env.reset(options={"index": index})
        base = env.unwrapped
        while not (over := base.state.mind.over):
            action = base.expert_action()
            if not is_call(action) and "euros" in action and base._customer().asks_amount:
                return env, int(re.search("([0-9]+) euros", action)[1])
            base.step(action)
        assert over
    raise AssertionError("no customer asks for an amount")


@pytest.mark.parametrize(
    "text", ["Sorry, that was a slip: that will be {} euros.", "No, it is {} euros, not 7777 euros."]
)
def test_an_amount_that_was_said_wrongly_can_be_corrected(text):
    env, amount = asked_for_an_amount()
    base = env.unwrapped
    assert "7777 euros" in base.step("That will be 7777 euros.")[0]
    assert f"{amount} euro" in base.step(text.format(amount))[0]
    assert ended(base)[1] == 1


def test_an_amount_that_is_right_stays_when_it_is_said_again_beside_another():
    env, amount = asked_for_an_amount()
    base = env.unwrapped
    base.step(f"That will be {amount} euros.")
    base.step(f"That's {amount} euros, as I said; the other thing was 7777 euros.")
    assert list(base.state.mind.beliefs.values())[-1] == amount


def test_telling_an_amount_to_somebody_who_was_not_identified_is_a_fault():
    env, _ = asked_for_an_amount()
    base = env.unwrapped
    base.state.desk.verified.clear()
    base.step(base.expert_action() if not is_call(base.expert_action()) else "That will be 45 euros.")
    base.step("That will be 45 euros.")
    assert "told before the code word was checked" in base.state.desk.faults


def test_a_yes_has_the_right_number():
    env = make(level=4)
    base, request = env.unwrapped, first(env, lambda request, deed: request.misread and deed.kind == "act")
    said = base.step("Shall I go ahead?")[0]
    assert request.wishes[0].item in said and request.misread not in said and not base.state.desk.agreed
    assert request.wishes[0].item in base.step("Shall I go ahead?")[0] and base.state.desk.agreed


def test_the_expert_wins_twins_whose_dropped_request_became_allowed():
    for level, index in ((6, 121), (7, 431), (8, 207)):
        env = make(split="twins", level=level)
        assert play(env, index)[0] == 1


def test_the_expert_can_be_asked_after_the_end_and_a_voice_needs_its_customer():
    env = make(level=1)
    play(env, 0)
    env.unwrapped.expert_action()
    with pytest.raises(ConfigError, match="customer='voiced'"):
        make(url="http://127.0.0.1:1/v1")
