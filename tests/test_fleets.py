"""Fleets: what a driver may count on, in this process and in others."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from fleet_members import Killed, Member, Picky
from numpy.testing import assert_array_equal
from processes import ENVIRONMENT
from rounds_cases import factories

from fastm4n.distributed._rounds import solve_rounds
from fastm4n.distributed.fleets import InProcessFleet, Lost, NoMember, ProcessFleet

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def members(n):
    return [partial(Member, k) for k in range(n)]


@pytest.fixture(scope="module")
def processes():
    with ProcessFleet(members(3)) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def of_chains():
    with ProcessFleet(factories("chains", "log", 2)) as fleet:
        yield fleet


@pytest.fixture(params=["in process", "processes"])
def fleet(request):
    if request.param == "processes":
        yield request.getfixturevalue("processes")
    else:
        with InProcessFleet(members(3), order=0) as fleet:
            yield fleet


def is_there(pid):
    """Whether there is such a process, and it is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids, seconds=5.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(map(is_there, pids)):
        time.sleep(0.02)
    return not any(map(is_there, pids))


def test_answers_come_in_order(fleet):
    assert fleet.n_members == 3 and fleet.alive() == [True] * 3
    assert fleet.call_all("echo", "a", each=[(k, k + 1) for k in range(3)]) == [
        (0, "a", 0, 1), (1, "a", 1, 2), (2, "a", 2, 3)]
    assert fleet.call_all("echo", members=[2, 0]) == [(2,), (0,)]
    assert fleet.call_all("echo", members=[]) == []
    with pytest.raises(ValueError, match="each must have arguments for 3 members, got 1"):
        fleet.call_all("echo", each=[()])


def test_errors_are_raised_and_members_stay(fleet):
    with pytest.raises(ValueError, match="member 1 is not content"):
        fleet.call_all("fail", [2, 1])
    assert fleet.call_all("fail", []) == [0, 1, 2]
    with pytest.raises(AttributeError, match="nothing"):
        fleet.call_all("nothing")


def test_stop_reaches_members(fleet):
    fleet.stop()
    assert fleet.call_all("work", 30.0) == [True] * 3
    fleet.stop(False)
    assert fleet.call_all("work", 0.02) == [False] * 3


def test_large_arrays_are_shared_and_read_only(processes):
    for size in (5, 20_000, 50_000, 100):
        array = np.arange(size, dtype=np.float64)
        for answer in processes.call_all("add", array, each=[(1.0,)] * 3):
            assert answer[:2] == (array.sum() + 1.0, size < 8192)
    whole = np.arange(40_000).reshape(200, 200)
    two = processes.call_all("echo", whole, 7, whole[::-1])
    assert_array_equal(two[1][1], whole)
    assert_array_equal(two[2][3], whole[::-1])


def test_answers_that_cannot_be_sent(processes):
    with pytest.raises(RuntimeError, match="cannot be sent"):
        processes.call_all("unspeakable")
    assert processes.call_all("echo") == [(0,), (1,), (2,)]


@POSIX
def test_a_killed_member_is_noticed_at_once_and_replaced():
    with ProcessFleet(members(2)) as fleet:
        pids = fleet.call_all("pid")
        for how, reason in (("kill", "SIGKILL"), ("exit", "exit code 3")):
            before = fleet.call_all("pid")
            answers = fleet.call_all("die", [1], how)
            assert answers[0] == 0 and isinstance(answers[1], Lost)
            assert answers[1].member == 1 and reason in answers[1].reason
            assert fleet.alive() == [True, False]
            again = fleet.call_all("echo")
            assert again[0] == (0,) and isinstance(again[1], Lost)
            fleet.replace(1)
            assert fleet.alive() == [True, True]
            now = fleet.call_all("pid")
            assert now[0] == before[0] and now[1] != before[1]
        # between two calls
        os.kill(now[0], signal.SIGKILL)
        assert isinstance(fleet.call_all("echo")[0], Lost)
        fleet.replace(0)
        assert fleet.call_all("echo") == [(0,), (1,)]
        last = fleet.call_all("pid")
    assert wait_until_gone([*pids, *now, *last])


def test_a_member_that_hangs_is_given_up():
    with ProcessFleet(members(2), timeout=1.0) as fleet:
        pids = fleet.call_all("pid")
        answers = fleet.call_all("hang", [0])
        assert answers[1] == 1 and "no answer in 1 seconds" in answers[0].reason
        assert wait_until_gone(pids[:1])
        assert fleet.call_all("hang", [], members=[1]) == [1]


def test_closed_fleets(fleet):
    with type(fleet)(members(1)) as other:
        pass
    other.close()
    with pytest.raises(ValueError, match="the fleet is closed"):
        other.call_all("echo")
    with pytest.raises(NoMember, match="closed"):
        other.replace(0)
    assert other.alive() == [False]
    with pytest.raises(ValueError, match="at least one member"):
        type(fleet)([])


def test_factories_that_do_not_succeed(tmp_path):
    file = tmp_path / "there"
    with ProcessFleet([Picky(str(file))]) as fleet:
        pid = fleet.call_all("pid")[0]
        file.touch()
        with pytest.raises(RuntimeError, match="no data today"):
            fleet.replace(0)
        assert isinstance(fleet.call_all("echo")[0], Lost)
    with pytest.raises(RuntimeError, match="no data today"):
        ProcessFleet([Picky(str(file))])
    with pytest.raises(NoMember, match="member 0 could not be made.*exit code 7"):
        ProcessFleet([Killed()])
    assert wait_until_gone([pid])


@POSIX
def test_an_interrupted_call_is_dropped(processes):
    main = threading.main_thread().ident
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        processes.call_all("work", 30.0)
    timer.join()
    processes.stop()
    assert processes.call_all("echo") == [(0,), (1,), (2,)]
    processes.stop(False)


@POSIX
@pytest.mark.parametrize("in_processes", [False, True])
def test_interrupts_at_any_moment_leave_a_certified_round(in_processes, of_chains):
    with (contextlib.nullcontext(of_chains) if in_processes
          else InProcessFleet(factories("chains", "log", 2))) as fleet:
        for delay in (0.0, 0.003, 0.011, 0.05, 0.1):
            timers = []

            def begin(row, delay=delay, timers=timers):
                if row["round"] == 2:
                    main = threading.main_thread().ident
                    timers.append(
                        threading.Timer(delay, signal.pthread_kill, (main, signal.SIGINT)))
                    timers[0].start()

            solution = solve_rounds(fleet, 0.1, tol=0.0, max_rounds=10**6, callback=begin)
            timers[0].join()
            assert solution.interrupted and solution.n_rounds >= 2
            assert 0 < solution.certificate.gap < 1
        again = solve_rounds(fleet, 0.1, tol=1e-4)
        assert again.converged and not again.interrupted


CODE = """
import os, sys, time
from functools import partial
sys.path[:0] = [{tests!r}]
from fastm4n.distributed.fleets import ProcessFleet
from fleet_members import Member
if __name__ == "__main__":
    fleet = ProcessFleet([partial(Member, k) for k in range(2)])
    print(os.getpid(), *fleet.call_all("pid"), flush=True)
    {then}
"""


@POSIX
@pytest.mark.parametrize("then, kill", [
    ("fleet.call_all('work', 60.0)", signal.SIGKILL),
    ("fleet.call_all('work', 60.0)", signal.SIGINT),
    ("raise SystemError", None),
])
def test_no_process_is_left_behind(tmp_path, then, kill):
    script = tmp_path / "script.py"
    script.write_text(CODE.format(tests=os.path.dirname(__file__), then=then))
    with subprocess.Popen(
            [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=ENVIRONMENT, text=True) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 3
        if kill is not None:
            time.sleep(0.1)
            os.kill(pids[0], kill)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        assert wait_until_gone(pids)


def results(fleet, **options):
    solution = solve_rounds(fleet, 0.1, tol=0.0, max_rounds=5, **options)
    return solution.z, solution.history["gap"]


def test_rounds_give_the_same_bits_in_processes(of_chains):
    with InProcessFleet(factories("chains", "log", 2)) as fleet:
        expected, gaps = results(fleet)
    found, others = results(of_chains)
    for name, array in expected.items():
        assert_array_equal(found[name], array)
    assert_array_equal(gaps, others)


@POSIX
def test_rounds_survive_a_killed_process(of_chains):
    killed = []

    def kill(row):
        if row["round"] == 3 and not killed:
            killed.append(of_chains.processes[1].pid)
            os.kill(killed[0], signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match="worker 1 was lost"):
        solution = solve_rounds(of_chains, 0.1, tol=1e-4, max_rounds=300, callback=kill)
    with InProcessFleet(factories("chains", "log", 1)) as fleet:
        other = solve_rounds(fleet, 0.1, tol=1e-6, max_rounds=300)
    assert solution.converged and solution.history["lost"][-1] == 1
    left = solution.certificate.primal - other.certificate.primal
    assert -1e-6 <= left <= solution.certificate.gap
    assert wait_until_gone(killed)
