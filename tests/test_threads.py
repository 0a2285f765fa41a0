"""Worker threads are reused, never waited for, end when idle and are not inherited; loops in threads can be stopped."""

import asyncio
import functools
import multiprocessing
import random
import threading
import time
import warnings
from typing import Any

import pytest

from agent_envs import threads
from agent_envs.per_process import PerProcess
from agent_envs.threads import LoopThread, background_loop, is_responsive, run_in_thread, run_side_by_side


@pytest.fixture(autouse=True)
def _fresh_workers(monkeypatch):
    monkeypatch.setattr(threads, "_idle", PerProcess())


def test_a_free_worker_is_used_again():
    idents = {run_in_thread(threading.get_ident).result(timeout=5) for _ in range(20)}
    assert len(idents) == 1


def test_work_never_waits_for_other_work():
    release = threading.Event()
    hung = [run_in_thread(release.wait) for _ in range(20)]
    assert run_in_thread(lambda: "done").result(timeout=5) == "done"
    release.set()
    assert all(future.result(timeout=5) for future in hung)


def test_arguments_results_and_exceptions_are_passed_on():
    def fail() -> None:
        raise SystemExit(3)

    assert run_in_thread(divmod, 7, 2).result(timeout=5) == (3, 1)
    assert isinstance(run_in_thread(fail).exception(timeout=5), SystemExit)
    assert run_in_thread(dict, a=1).result(timeout=5) == {"a": 1}  # the worker has outlived the exception


def test_an_idle_worker_ends(monkeypatch):
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.05)
    worker: Any = run_in_thread(threading.current_thread).result(timeout=5)
    worker.join(timeout=5)
    assert not worker.is_alive() and threads._idle.get("", list) == []
    assert run_in_thread(lambda: 1).result(timeout=5) == 1


def test_many_callers_at_once():
    counts: list[int] = []

    def caller() -> None:
        counts.append(sum(run_in_thread(lambda i=i: i).result(timeout=20) for i in range(100)))

    callers = [threading.Thread(target=caller) for _ in range(20)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert counts == [4950] * 20


def test_a_forked_child_starts_workers_of_its_own():
    run_in_thread(time.sleep, 0).result(timeout=5)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(run_in_thread(lambda: "child").result(timeout=5)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: fork in a process with threads
        child.start()
    child.join(timeout=20)
    assert child.exitcode == 0 and queue.get() == "child"


def test_calls_side_by_side_keep_their_order_and_wait_together():
    """From several threads at once, quick and slow ones mixed; random, with its seed in the failure."""
    seed = time.time_ns() % 2**32

    def rounds(number):
        rng = random.Random(seed + number)
        for _ in range(40):
            waits = [rng.choice((0.0, 0.0, 0.0005, 0.003)) for _ in range(rng.randrange(6))]
            calls = {
                i: functools.partial(lambda i, wait: (time.sleep(wait), i)[1], i, wait) for i, wait in enumerate(waits)
            }
            done = run_side_by_side(calls)
            assert list(done.items()) == [(i, i) for i in range(len(waits))], seed
        return True

    futures = [run_in_thread(rounds, number) for number in range(4)]
    assert all(future.result(60) for future in futures)
    together = threading.Barrier(20)  # who waits here alone raises
    run_side_by_side({i: functools.partial(together.wait, 30) for i in range(20)})


def test_an_error_of_a_call_is_raised_once_all_are_done():
    done = []

    def late():
        time.sleep(0.05)
        done.append(1)

    def wrong():
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_side_by_side({"a": late, "b": wrong, "c": late})
    assert done == [1, 1]


def test_a_stopped_loop_cancels_what_runs_on_it():
    thread = LoopThread("test")
    ended = []

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(asyncio.get_running_loop())

    running = thread.submit(forever())
    assert is_responsive(thread.loop)
    thread.stop()
    assert ended == [thread.loop] and running.cancelled() and thread.loop.is_closed()


def test_a_blocked_background_loop_is_replaced():
    blocked, release = background_loop(), threading.Event()
    blocked.call_soon_threadsafe(release.wait)
    assert not is_responsive(blocked, 0.05)
    fresh = background_loop(replace=blocked)
    assert fresh is not blocked and background_loop(replace=blocked) is fresh and is_responsive(fresh, 5)
    release.set()
