"""The native ALFWorld engine beside the original: the same words, commands, rewards and ends, command for command.

The judge is the original engine, with caches that change nothing (checked here against the original without them). The
short test runs with the others, `make test-parity` is the long one. Both need the extra `alfworld`.
"""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest

from agent_envs.datasets.alfworld.generate import game_document, problem_text
from agent_envs.datasets.alfworld.generated.tasks import GeneratedHouses
from agent_envs.datasets.alfworld.problem import FAMILIES
from agent_envs.datasets.alfworld.rows import GAME_FILE, Game, alfworld_games, load_game, load_problem
from agent_envs.envs.alfworld.engine import begin, intro, play
from agent_envs.envs.alfworld.explore import explore_action
from agent_envs.envs.alfworld.game import GroundedGame
from agent_envs.envs.alfworld.textworld import TextWorldEpisode, episode_at
from agent_envs.errors import DataError

pytest.importorskip("textworld", reason="the original engine is the extra 'alfworld'", exc_type=ImportError)
pytest.importorskip("fast_downward", reason="the original engine is the extra 'alfworld'", exc_type=ImportError)

SIZES = (1, 2, 3, 4, 5)
ODD = (
    "", " ", "look", " look ", "\tlook\n", "Look", "LOOK", "look around", "l", "inventory", "Inventory", "i", "help",
    "HELP", "help me", "examine", "examine ", "go to", "go to ", "go to nowhere 1", "take", "open", "close", "use",
    "put", "move", "quit", "restart", "wait", "\x00", "\x1b[2J", "é 中 😀", "\u00a0look\u00a0", "\ufefflook",
    "look\u2028", "a" * 999, "{r}", "{o.name}", "#look.feedback#", "[x | y]", "%s", "look; inventory", "look\nlook",
    "go to cabinet 01", "go  to cabinet 1",
)  # fmt: skip


class Stock:
    """The original engine as the alfworld package puts it together, without our caches and session."""

    def __init__(self) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs import PddlEnv

        infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
        self.env = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))

    def start(self, game, read):
        self.env.load(read())
        return self._episode(self.env.reset())

    def step(self, command):
        state, reward, done = self.env.step(command)
        assert float(reward) == float(state["won"]) and bool(done) == bool(state["won"]), command
        return self._episode(state)

    @staticmethod
    def _episode(state):
        return TextWorldEpisode("", state.feedback, (), list(state.admissible_commands), bool(state["won"]))


class Cached:
    """The engine that environments play, in its process."""

    def start(self, game, read):
        self.read = read
        self.episode = episode_at(game, (), read)
        return self.episode

    def step(self, command):
        self.episode = episode_at(self.episode.game, (*self.episode.history, command), self.read)
        return self.episode


@pytest.fixture(scope="module")
def engine():
    return Cached()


@pytest.fixture(scope="module")
def stock(engine, tmp_path_factory):
    return Stock()


def odd_command(rng, commands, seen):
    """An arbitrary command: odd ones, others said differently, things and verbs put together at random."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(ODD)
    some = rng.choice(commands)
    if kind == 1:
        return rng.choice(
            [some.upper(), f"  {some}\t", some.title(), some[:-1], some + ".", some.replace(" ", "  ", 1)]
        )
    names = sorted({word for command in seen for word in _names(command)}) or ["fridge 1"]
    a, b = rng.choice(names), rng.choice(names)
    if kind == 2:
        return rng.choice(sorted(seen))  # admissible once, perhaps not now
    verb = rng.choice(
        ["go to {a}", "open {a}", "close {a}", "examine {a}", "use {a}", "take {a} from {b}", "move {a} to {b}",
         "put {a} in/on {b}", "put {a} in {b}", "clean {a} with {b}", "heat {a} with {b}", "cool {a} with {b}",
         "slice {a} with {b}", "go to {a} ", "take {a}", "drop {a}"]
    )  # fmt: skip
    return verb.format(a=a, b=b)


def _names(command):
    words = command.split()
    return [f"{words[k - 1]} {words[k]}" for k in range(1, len(words)) if words[k].isdigit()]


def compare(judge, name, read, problem, rng, admissible, odd, plan=()):
    """Play both engines side by side; the number of commands compared."""
    house = GroundedGame(problem, name)
    state = begin(house)
    log = []

    def same(reply, text):
        where = f"{name} after {log}"
        assert reply.text == text, where
        assert reply.commands == state.commands, where
        assert reply.won == state.won, where

    reply = judge.start(name, read)
    same(reply, intro(house, state))
    seen = set(reply.commands)
    turns = ["admissible"] * admissible + ["odd"] * odd
    rng.shuffle(turns)
    for command in [*plan, *turns]:
        if command == "odd":
            command = odd_command(rng, reply.commands, seen)
        elif command == "admissible":
            doing = [
                c for c in reply.commands if not c.startswith(("go to", "examine", "look", "inv", "help", "close"))
            ]
            command = rng.choice(doing if doing and rng.random() < 0.5 else reply.commands)
        log.append(command)
        reply = judge.step(command)
        same(reply, play(house, state, command))
        seen.update(reply.commands)
    return len(log)


def expert_commands(problem, limit=100):
    """The commands of the player that only reads."""
    house = GroundedGame(problem)
    state = begin(house)
    transcript = [intro(house, state)]
    while not state.won and len(transcript) < 2 * limit:
        command = explore_action(transcript, state.commands)
        if command is None:
            break
        transcript += [command, play(house, state, command)]
    return transcript[1::2], state.won


def every_game(data_dir: Path) -> list[Game]:
    """All real games, flagged unsolvable ones included."""
    files = sorted((data_dir / "alfworld").rglob(GAME_FILE))
    return [
        Game(str(file.relative_to(data_dir)), file.parent.parent.name.partition("-")[0], str(file)) for file in files
    ]


def generated(count):
    """Generated games over all sizes, splits and families."""
    splits = ("train", "valid_seen", "valid_unseen")
    return [GeneratedHouses(splits[k % 3], SIZES[k % 5], [FAMILIES[k % 6]])[1 + k // 6] for k in range(count)]


def _play_all(judge, games, seed, admissible, odd, experts=True):
    counts = {"games": 0, "commands": 0, "won": 0, "refused": 0}
    for name, read, make in games:
        rng = random.Random(f"{seed} {name}")
        try:
            problem = make()
            GroundedGame(problem)
        except DataError:
            with pytest.raises((DataError, KeyError)):
                judge.start(name, read)
            counts["refused"] += 1
            continue
        plan, won = expert_commands(problem) if experts else ([], False)
        counts["commands"] += compare(judge, name, read, problem, rng, 0, 0, plan)
        counts["commands"] += compare(judge, name, read, problem, rng, admissible, odd)
        counts["games"] += 1
        counts["won"] += won
    return counts


def _report(capsys, counts):
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(counts)}\n")


def real(games):
    return [(g.task_id, lambda g=g: load_game(g.file), lambda g=g: load_problem(g.file)) for g in games]


def made(games):
    return [(g.task_id, lambda g=g: game_document(g.problem), lambda g=g: g.problem) for g in games]


def test_both_engines_agree_on_real_and_generated_games(engine, data_dir):
    games = every_game(data_dir)
    some = [g for k, g in enumerate(games) if k % 5 == 0 or "unsolvable" in g.task_id]
    counts = _play_all(engine, real(some), 1, 30, 15)
    more = _play_all(engine, made(generated(4)), 1, 30, 15)
    assert counts["games"] >= 4 and counts["refused"] == 1
    assert more["games"] == 4


def mutated(problem, rng):
    """The problem with facts added and taken away that the files at hand do not have."""
    facts = list(problem.facts)
    things = sorted(name for name, kind in problem.objects.items() if kind == "object" and "_bar_" in name)
    stands = sorted({fact[1] for fact in facts if fact[0] == "receptacleatlocation"})
    places = sorted({fact[2] for fact in facts if fact[0] == "receptacleatlocation"})
    for _ in range(rng.randint(5, 25)):
        thing, stand, place = rng.choice(things), rng.choice(stands), rng.choice(places)
        facts.append(
            rng.choice(
                [("opened", stand), ("openable", stand), ("inreceptacle", thing, stand),
                 ("objectatlocation", thing, place),
                 ("toggleable", thing), ("sliceable", thing), ("pickupable", thing), ("heatable", thing),
                 ("coolable", thing), ("cleanable", thing), ("ishot", thing), ("iscool", thing), ("isclean", thing),
                 ("issliced", thing), ("istoggled", thing), ("ison", thing), ("isreceptacleobject", thing),
                 ("inreceptacleobject", thing, rng.choice(things)), ("receptacleatlocation", stand, place),
                 ("receptacletype", stand, rng.choice(["microwavetype", "fridgetype", "sinkbasintype"])),
                 ("objecttype", thing, rng.choice(["knifetype", "mugtype"])), ("wasinreceptacle", thing, stand)]
            )
        )  # fmt: skip
    if rng.random() < 0.3:
        facts = [("atlocation", fact[1], rng.choice(places)) if fact[0] == "atlocation" else fact for fact in facts]
    if rng.random() < 0.2:
        facts += [("holds", "agent1", rng.choice(things))] + [("holdsany", "agent1")] * rng.randint(0, 1)
    if rng.random() < 0.2:
        facts.append(("inreceptacle", rng.choice(stands), rng.choice(stands)))
    if rng.random() < 0.3:
        dropped = rng.choice(["canContain", "objectatlocation", "pickupable", "openable"]).lower()
        facts = [fact for fact in facts if fact[0] != dropped or rng.random() < 0.5]
    objects = dict(problem.objects)
    for fact in facts:
        for name in fact[1:]:
            objects.setdefault(name, "rtype" if fact[0] == "receptacletype" else "otype")
    return replace(problem, objects=objects, facts=tuple(dict.fromkeys(facts)))


def odd_houses(data_dir, count, seed):
    """Real and generated games with odd facts, in both editions."""
    files = [game for game in every_game(data_dir) if "unsolvable" not in game.task_id]
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        if k % 2:
            problem = mutated(generated(k + 1)[k].problem, rng)
            yield f"odd {k}", lambda p=problem: game_document(p), lambda p=problem: p
        else:
            file = files[k // 2 % len(files)].file
            problem = mutated(load_problem(file), rng)
            yield (
                f"odd {k}",
                lambda p=problem, f=file: {**load_game(f), "pddl_problem": problem_text(p)},
                lambda p=problem: p,
            )


def test_both_engines_agree_on_households_that_no_file_at_hand_has(engine, data_dir):
    counts = _play_all(engine, odd_houses(data_dir, 6, 5), 5, 30, 10, experts=False)
    assert counts["games"] + counts["refused"] == 6


def test_both_engines_play_on_where_two_things_are_asked_for_and_there_is_one(engine):
    game = next(g for g in generated(12) if g.family == "pick_two_obj_and_place")
    of_kind = sorted(f[1] for f in game.problem.facts if f[0] == "objecttype" and f[2] == _wanted_type(game.problem))
    assert len(of_kind) > 1
    problem = replace(game.problem, facts=tuple(f for f in game.problem.facts if not set(of_kind[1:]) & set(f)))
    rng = random.Random(1)
    assert compare(engine, "one of two", lambda: game_document(problem), problem, rng, 20, 5) == 25


def _wanted_type(problem):
    return f"{problem.params['object_target'].lower()}type"


def test_the_caches_change_nothing(engine, stock):
    counts = _play_all(stock, made(generated(1)), 2, 5, 3, experts=False)
    assert counts["commands"] == 8


def test_a_broken_game_leaves_the_others(engine, capfd):
    game = GeneratedHouses("train", 1)[3]
    begun = engine.start("x", lambda: game_document(game.problem))
    with pytest.raises(DataError, match="broken: TextWorld cannot play this game"):
        engine.start("broken", lambda: {"pddl_domain": "(", "grammar": "", "pddl_problem": "("})
    assert engine.start("x", lambda: game_document(game.problem)) == begun
    assert capfd.readouterr() == ("", "")


@pytest.mark.parity
def test_memory_of_both_processes_stays_flat(data_dir):
    me = pytest.importorskip("psutil").Process()
    folder = data_dir / "alfworld" / "json_2.1.1"
    env = gym.make("AgentR1/ALFWorld-v0", data=str(folder), split="valid_train", engine="textworld")
    sizes = []
    for most in (12, 2000):
        for k in range(most):
            env.reset(options={"index": k % 6})
            env.step("look")
        sizes.append(sum(process.memory_info().rss for process in (me, *me.children())))
    assert sizes[1] - sizes[0] < 50 << 20


@pytest.mark.parity
def test_all_games_at_hand_and_200_generated_ones(engine, data_dir, capsys):
    counts = _play_all(engine, real(every_game(data_dir)), 3, 300, 100)
    more = _play_all(engine, made(generated(200)), 3, 300, 100)
    _report(capsys, {"real": counts, "generated": more})
    assert counts["refused"] == 1 and counts["games"] >= 19
    assert more["games"] == 200 and more["won"] == 200


@pytest.mark.parity
def test_100_households_that_no_file_at_hand_has(engine, data_dir, capsys):
    counts = _play_all(engine, odd_houses(data_dir, 100, 6), 6, 100, 30, experts=False)
    _report(capsys, {"odd": counts})
    assert counts["games"] + counts["refused"] == 100 and counts["games"] > 70


@pytest.mark.parity
def test_ten_games_on_the_engine_without_caches(stock, data_dir, capsys):
    games = [g for g in every_game(data_dir) if "unsolvable" not in g.task_id]
    counts = _play_all(stock, real(games[::3]), 4, 300, 100)
    more = _play_all(stock, made(generated(4)), 4, 300, 100)
    _report(capsys, {"real": counts, "generated": more})
    assert counts["games"] + more["games"] == 10


@pytest.mark.parity
def test_every_real_split_lists_the_games_that_the_package_lists(data_dir):
    games = alfworld_games(str(data_dir / "alfworld" / "json_2.1.1"), "valid_train")
    from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv

    config = {
        "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6]},
        "dataset": {"data_path": str(data_dir / "alfworld" / "json_2.1.1" / "valid_train"), "num_train_games": 0},
    }
    theirs = AlfredTWEnv(config, "train").game_files
    assert sorted(theirs) == sorted(game.file for game in games)
