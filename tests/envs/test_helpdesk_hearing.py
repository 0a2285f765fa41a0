"""What a customer hears: tables of sentences with what is in them, and hostile texts."""

import gzip
import json
import os
import re
import time
from pathlib import Path

import pytest

from agent_envs.datasets.helpdesk.generated.domain import domain_names, load_domain
from agent_envs.envs.helpdesk.devices import told_and_asked
from agent_envs.envs.helpdesk.hearing import contradicts, hear
from agent_envs.envs.helpdesk.phrases import amounts_in

DOMAIN = load_domain("bicycle_hire")
MOVE, CANCEL = DOMAIN.acts["move_hire"], DOMAIN.acts["cancel_hire"]
VALUES = {"name": "Cleo Hart", "code": "2498", "number": "H96435", "days": "3", "reason": "illness"}

ASKS = {  # what is asked for; a wish to move is open
    "Could you tell me your name and your code word, please?": "name code",
    "name? code?": "name code",
    "Name and code word, please.": "name code",
    "I'll need your full name.": "name",
    "May I have the password?": "code",
    "To help you I need: \n1. Your name\n2. Your code word": "name code",  # items under a heading
    "- name\n- code": "name code",
    "Who am I speaking with?": "name",
    "What is the number of your hire?": "number",
    "Please provide the hire's ID.": "number",
    "Why do you want that?": "reason",
    "May I ask what's prompting the change?": "reason",
    "Could you share the reason along with the number of days?": "days reason",
    "What is the reason?": "reason",
    "And by how many days?": "days",
    "How long, and why?": "days reason",
    "Please verify your identity.": "name code",
    "I need to look you up first: could you share those details?": "name code",
    "How can I help you?": "wish",
    "What would you like me to do?": "wish",
    "I have found your name.": "",  # no request
    "Thank you, Cleo Hart, is that your name?": "",  # the value stands beside it
    "Is your code word 2498?": "",
    "Shall I move hire H23475 by 3 days?": "",  # digits of the number are no days
    "Is it illness, bad weather or something else?": "reason",  # several answers to choose from
    "Shall I move hire number H96435?": "",
    "Your number is in our books.": "",
    "hm": "",
    "The reason does not matter.": "",
    "Please don't tell me your code word.": "",
    "Please wait while I check your code word.": "",
    "For security reasons, I must ask for your code word.": "code",
    "How many do you want?": "days",  # the question word alone: one fact is asked for with it
    "Choose a number between 2 and 7, please.": "days",
    "Why would that be?": "reason",
    "How are you today?": "",  # about no fact
    "What is your date of birth?": "",
    "pls tell me the no. of days": "days",  # short forms
    'My colleague asked: "What is the reason?", and I told her.': "",  # said by somebody else
    "Who told you so?": "",
    "What is your phone number?": "",  # compounds of other things
    "What is the name of the bike?": "number",
    "Let me check the number of days first.": "",
    "I will ask you for the reason if I need it.": "",
    "Nothing more is needed about the reason.": "",
    "Shall I explain the reason?": "",  # what the agent would do itself
    "I'd be curious to hear the reason.": "reason",
    "Is it 3 days?": "",  # right: to be confirmed
    "Could you tell me what led you to move it?": "reason",
    "Could you tell me (a) by how many days and (b) what's behind it?": "days reason",
    "Could you hold on for a moment while I check your account?": "",
    "I was able to verify your account.": "",
    "If you want it moved, by how many days?": "days",
    "Before I go on, may I ask what prompted you to move it?": "reason",
    "What is your name, what is your code word, and why do you want it moved?": "name code reason",
    "To find the right number of days for you, may I ask for the reason?": "reason",
}
OFFERS = {  # whether a yes is asked for
    "Shall I go ahead?": True,
    "shall I move it": False,  # no question mark: the sentence may be a quotation
    "I can move hire H96435 by 3 days. Shall I go ahead?": True,
    "Would you like me to move it?": True,
    "Do you want me to cancel hire H96435?": True,
    "cancel H96435?": True,
    "cancel H96435, yes/no?": True,
    "Is that all right?": True,
    "I can move it. Is that all right, or would you like something else?": True,
    "I cannot move it. If you'd like, I can help with something else.": False,
    "I cannot move it. May I help you with something else?": False,
    "I would now move hire H96435. OK?": True,
    "Please confirm that I may move it.": True,
    "Please confirm if you would like to proceed with these details.": True,
    "Reply yes to go on.": True,
    "May I proceed?": True,
    "Do you agree?": True,
    "Let me know whether you'd like me to carry out the move.": True,
    "Moving it costs 17 euros, does that work for you?": True,
    "Which bike would you like?": False,  # a question with a question word
    "What would you like to do: move or cancel?": False,
    "When shall I move it to?": False,
    "Could you please provide your name so that I can proceed?": False,  # asks for a fact
    "I cannot go ahead.": False,
    "It has been moved.": False,
    "I will proceed.": False,
    "Could you tell me your code word?": False,
    "Anything else?": False,
    "Shall I leave it as it is?": False,  # the opposite, or something else
    "Would it be OK if I refused?": False,
    "Is it all right if I decline your request?": False,
    "Would you like me to do nothing?": False,
    "May I put you on hold for a moment?": False,
    "Are you happy with our service?": False,
    "May I proceed with the identity check?": False,
    "Do you want me to check?": False,
    "If I move it, who will ride it?": False,
    "I can move it only if it is insured. Do you insure it?": False,
    'You asked: "Could you move my hire H96435 by 3 days?"': False,
    "If you have no objections, I'll move it by 3 days.": True,
    "Shall I take care of it?": True,
    "If that suits you, I'll move it by 3 days.": True,
    "I'd like your permission to move it.": True,
    "Should you want to move it later, please call us again.": False,
    "Are you sure that hire H96435 is yours?": False,
    "Are you sure that you want this?": True,
    "Please let me know which hire you would like to move.": False,
    "You do not have to tell me when to move it.": False,
    "Is this the first time you move a hire?": False,
    "I have moved it, haven't I?": False,
    "Can you confirm that it is the Heron?": False,
    "Would you rather move it on Monday or on Tuesday?": False,
    "Shall I move it by 2 days or by 4 days?": False,  # a choice
    "Would you like to hear what rule 2.4 says?": False,
    "So your code word is 2498, correct?": False,
    "Just give me the word and it's moved.": True,
    "If you want it moved, by how many days?": False,
    "I cannot move it. Shall we move on to something else?": False,
    "That cannot be done. Is everything else in order?": False,
    "I can move it by 3 days, what would you say to that?": True,
    "I'd be glad to move it. Could you tell me (a) by how many days and (b) why?": False,
    "Would you tell me why you want to move it?": False,
}
OTHERS = {  # reports, refusals, doubts
    "It is done.": "report",
    "Your hire has been moved.": "report",
    "I've moved it.": "report",
    "I am sorry, rule 2.1 does not allow that.": "refuse",
    "Unfortunately that cannot be done.": "refuse",
    "I'm afraid I have to turn down your request under rule 2.1.": "refuse",
    "no, that is not possible": "refuse",
    "I find no hire with this number. Could you check it again?": "doubt",
    "There is no such number.": "doubt",
    "I cannot find it.": "doubt",  # not a refusal
    "That hire does not exist.": "doubt",
    "I can't locate H96435.": "doubt",
    "There's nothing under H96435. Might you have mistyped it?": "doubt",
    "Are you sure the number is right?": "doubt",
    "Under rule 2.1 this is prohibited.": "refuse",
    "Please note that rule 2.1 does not allow this.": "refuse",
    "It's too late to move it.": "refuse",
    "It is not too late to move it.": "",
    "I will do everything in my power to help you.": "",
    "You have to stay on the line.": "",
    "Your permission has been noted.": "",
    "blue": "",
    "Is your name Cleo Hart?": "confirm",
    "You mean hire H96435, right?": "confirm",
    "Is it illness?": "confirm",
    "Did you say 4 days?": "",
    "Is it 2, 3, 4 days?": "",  # a guess names one number
    "2 3 4 5 6 7?": "",
}


@pytest.mark.parametrize("text", ASKS)
def test_what_is_asked_for(text):
    assert set(hear(text, DOMAIN, MOVE, VALUES).asks) == set(ASKS[text].split())


@pytest.mark.parametrize("text", OFFERS)
def test_whether_a_yes_is_asked_for(text):
    assert bool(hear(text, DOMAIN, MOVE, VALUES).offer) is OFFERS[text]


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_said_to_have_happened(text):
    names = set(hear(text, DOMAIN, MOVE, VALUES).names().split())
    assert {name for name in names if not name.startswith("ask:")} == set(OTHERS[text].split())


@pytest.mark.parametrize("name", domain_names())
def test_every_question_of_a_domain_is_heard(name):
    domain = load_domain(name)
    for act in domain.acts.values():
        for ask in act.asks:
            heard = hear(ask.question, domain, act, {}).asks
            assert ask.name in heard and len(heard) <= 2, ask.question


@pytest.mark.parametrize("name", [name for name in domain_names() if load_domain(name).device])
def test_everything_about_a_device_can_be_heard(name):
    device = load_domain(name).device
    for act, verb in [(one, verb) for one in device.acts.values() for verb in one.verbs]:
        assert told_and_asked(f"Please {verb} {act.object}.", device)[0] == [act.name]
    for read in device.reads:
        assert read in told_and_asked(device.reads[read].question, device)[1]


CONTRADICTIONS = [  # an offer where moving H96435, the Heron, by 3 days is wanted
    ("shall i move h96435 by 3 days?", False),
    ("shall i move it by three days?", False),
    ("shall i go ahead?", False),
    ("shall i postpone #96435?", False),
    ("shall i move h11111 by 3 days?", True),
    ("shall i move it by 4 days?", True),
    ("shall i move it by seven days?", True),
    ("shall i cancel it?", True),
    ("shall i cancel or move it?", False),
    ("shall i move the hire of the swift?", True),
    ("shall i move the hire of the heron?", False),
    ("it costs 17 euros. shall i move it by 3 days?", False),
    ("shall i move it by 3 weeks?", True),
    ("shall i move it by a week?", True),
    ("shall i move it 3 days earlier?", True),
    ("shall i bring it forward by 3 days?", True),
    ("shall i move it by 5 days instead of 3 days?", True),
    ("shall i move it by 3 days, not by 5 days?", False),
    ("shall i move it by 3 days or by 5 days?", True),
    ("shall i move h96435 by 3 days and cancel h11111?", True),
    ("your hire starts in 2 days. shall i move it by 3 days?", False),
]


ELSEWHERE = [  # a domain, what is wanted, its item with its label, an offer
    ("mobile_phone", "transfer_line", {"relation": "son", "handover": "in person"}, ("L43423", "Marathon"), [
        ("shall i transfer line l43423 to your son?", False),
        ("shall i transfer line l43423 to your uncle?", True),
        ("shall i transfer line l43423 to your mother-in-law?", True),
    ]),
    ("e_scooters", "waive_unlock_fee", {"ground": "flat battery"}, ("P11111", "Firefly"), [
        ("shall i cancel the 15 euro unlocking fee on the pass?", False),  # which is waiving it
        ("shall i cancel the pass p11111?", True),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("offer", "other"), CONTRADICTIONS)
def test_an_offer_of_something_else_is_noticed(offer, other):
    labels = {"H96435": "Heron", "H11111": "Swift"}
    assert contradicts(offer, DOMAIN, MOVE, "H96435", {"days": 3, "reason": "illness"}, labels) is other


@pytest.mark.parametrize(("name", "act", "wanted", "item", "offers"), ELSEWHERE)
def test_persons_and_fees_that_are_not_wanted_are_noticed(name, act, wanted, item, offers):
    domain = load_domain(name)
    for offer, other in offers:
        assert contradicts(offer, domain, domain.acts[act], item[0], wanted, dict([item])) is other


AMOUNTS = [
    ("It costs 17 euros.", [17], []),
    ("The charge is 17 euros.", [17], [17]),
    ("The charge for that comes to €17", [17], [17]),
    ("The price was 86 euros, the charge is 17 euros.", [86, 17], [17]),
    ("charge: 17", [17], [17]),
    ("The charge is 20 % of 86 euros.", [], []),  # the base of a share
    ("That is a quarter of the 94 euro price, rounded down to 23 euros.", [23], []),
    ("75% of the annual fee of 86 euros, which is 64 euros", [64], []),
    ("20% of €385, i.e. €77", [77], []),
    ("Its price is more than 30 euros.", [], []),  # a bound
    ("EUR 17.00", [17], []),
    ("That makes €17.", [17], []),
    ("17.50 euros", [], []),
    ("17.00 euros", [17], []),
    ("an additional hundred and one euros", [101], []),
    ("The charge for 6 more days is 17 euros.", [17], [17]),
    ("by 3 days", [], []),
    ("It is 0 euros or 86 euros", [0, 86], []),
    ("Your hire costs 60 euros a day.", [], []),  # not of what is asked for
    ("You still owe us 20 euros.", [], []),
    ("I see a debt of 50 euros on your account.", [], []),
    ("The price of your hire is 52 euros.", [], []),
    ("It would be 60 euros if you were a guest, but for you it is 45 euros.", [45], []),
    ("That comes to one hundred and eighty-one euros.", [181], []),
    ("Two thousand five hundred euros.", [2500], []),
    ("a 45-euro charge", [45], []),
    ("It's free.", [0], [0]),
]


@pytest.mark.parametrize(("text", "every", "named"), AMOUNTS)
def test_amounts(text, every, named):
    assert amounts_in(text, ("charge",)) == (every, named)


@pytest.mark.parametrize(
    "text",
    [
        "charge " * 40_000,
        "?" * 262_144,
        "name " * 50_000,
        "shall i " * 30_000,
        "1" * 262_144,
        *(f"{line}\n" * 80_000 for line in ("- ", "a", "sim", "it", "1.", "- put", "look?")),
        *(word * 50_000 for word in ("ok? ", "-", "- ", "!", "(", ", ", "and ", "so, ", "first, ", "and - ")),
        " " * 262_144,
        'said "' * 50_000,
        "if i need let me how much " * 12_000,
        "sim card search data flight mode " + "put " * 2_000,
    ],
)
def test_hostile_texts_take_no_time(text):
    spent = []
    for _ in range(3):  # other work on the machine slows some
        start = time.process_time()
        hear(text, DOMAIN, MOVE, VALUES)
        amounts_in(text, MOVE.amount.words)
        told_and_asked(text, load_domain("mobile_phone").device)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.1


def shares(wanted, heard):
    """Return how much of what was heard is right, and how much of what is right was heard."""
    right = sum(len(one & other) for one, other in zip(wanted, heard, strict=True))
    return right / sum(map(len, heard)), right / sum(map(len, wanted))


def test_sentences_of_somebody_who_had_not_seen_the_word_lists_are_heard():
    """Sentences over all domains, with labels; the label of one, a wh-question that was called an offer, was put
    right. Numbers of rows that are doubted count as asked for. The lists were mended after each set had been scored.
    Of the last 170, facts asked for (looks at devices included) had a precision of .94 and a recall of .94, offers .96
    and 1.0, and 169 were rightly heard to be an offer or none; those of them that had been misheard are here, and what
    two language models that served 45 customers said in vain."""
    rows = json.loads(Path(__file__).with_name("helpdesk_sentences.json").read_text(encoding="utf-8"))
    wanted, heard = {}, {}
    nothing = said = 0
    for row in rows:
        domain, text = load_domain(row["domain"]), row["text"]
        act = domain.acts[row["act"]] if "act" in row else None
        found = hear(text, domain, act, row.get("values", {}))
        device = None if act else domain.device
        presses, reads = told_and_asked(text, device) if device else ([], [])
        amounts = amounts_in(text, act.amount.words) if act and act.amount and "amounts" in row else ([], [])
        asks = {*found.asks, *(["number"] * found.doubts)} - ({"number"} if device else set())
        of = {
            "asks": asks | {f"read:{read}" for read in reads},
            "offers": {True} if found.offer else set(),
            "refuses": {True} if found.refuses else set(),
            "presses": set(presses),
            "amounts": set(amounts[1] if len(amounts[1]) == 1 else amounts[0]),
        }
        for kind, values in of.items():
            label = row.get(kind, [])
            if kind != "amounts" or (act and act.amount):
                wanted.setdefault(kind, []).append({True} if label is True else set(label))
                heard.setdefault(kind, []).append(values)
        if row.keys() & {*of, "reports"}:
            said, nothing = said + 1, nothing + (not any(of.values()) and not found.reports)
    assert len(rows) == 635 and nothing / said <= 0.05
    for kind, least in {"asks": 0.9, "offers": 0.97, "refuses": 0.9, "presses": 0.9, "amounts": 0.95}.items():
        assert min(shares(wanted[kind], heard[kind])) >= least, kind


def test_offers_of_a_large_model_are_heard():
    """Of GPT-4o's turns in tau-bench's airline that its user answered with a yes; by path of the recorded file."""
    folder = os.environ.get("AGENT_ENVS_TEST_DATA", "")
    path = Path(folder, "taubench", "gpt-4o-airline.json.gz")
    if not path.is_file():
        pytest.skip(f"{path} is not there: AGENT_ENVS_TEST_DATA names the folder")
    turns = heard = nothing = count = 0
    for episode in json.loads(gzip.decompress(path.read_bytes())):
        for said, reply in zip(episode["traj"], episode["traj"][1:], strict=False):
            if said["role"] != "assistant" or not said.get("content") or reply["role"] != "user":
                continue
            found, answer = hear(said["content"], DOMAIN, None, {}), reply["content"].strip().lower()
            count, nothing = count + 1, nothing + (not found.names())
            if re.match(r"(yes|please go ahead|go ahead)\b", answer) and not re.search("(user|reservation) id", answer):
                turns, heard = turns + 1, heard + bool(found.offer)
    assert count == 1290 and turns > 180 and heard / turns >= 0.97
    assert nothing / count < 0.20  # its user ids and flights are no facts of this domain
