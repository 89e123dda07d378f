"""Damaged and hostile files for everything that reads files, until something else than an error.

    python tests/fuzz.py --target readers --cases 1000000 --seed 0
    python tests/fuzz.py --target model_files --seconds 60
    python tests/fuzz.py --target conll --seed 0 --only 1234

A reader may refuse a file by a ValueError or an OSError with a message. Whatever else happens is a
finding: another exception, no message, a crash of the process, more time or memory than a file of
this size may take. The file of a finding is kept; its number and the seed make it again. Cases run
in a process of their own, which is forked from this one: Linux and macOS.
"""

import argparse
import contextlib
import mmap
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

# threads would only wait for one another, and their stacks count against the limit of memory
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import resource  # noqa: E402

from fuzz_targets import FILES, READERS, TARGETS  # noqa: E402

GROUPS = {"all": TARGETS, "readers": READERS, "files": FILES}
# limits are of processor time: what else runs on the machine must not make findings. Seconds of
# the clock, in limits, after which a process that does not heed the alarm is killed
PATIENCE = 20
# after so many findings of one kind, files are no longer kept
MOST_KEPT = 3
# what a reader says that has asked for more memory than there is
_OF_MEMORY = re.compile("too large for the memory|out of memory|Unable to allocate")


class TookLong(BaseException):
    """Not an Exception: what a target catches must not be this."""


def _alarm(number, frame):
    raise TookLong


def case_of(target, name, seed, number):
    return target.make(random.Random(f"{name} {seed} {number}"))


class Shared:
    """What a worker tells while it runs: integers that outlast it."""

    NAMES = ("number", "accepted", "refused", "slowest", "slowest_at", "largest", "largest_at")

    def __init__(self):
        self._memory = memoryview(mmap.mmap(-1, 8 * len(self.NAMES))).cast("q")

    def __getitem__(self, name):
        return self._memory[self.NAMES.index(name)]

    def __setitem__(self, name, value):
        self._memory[self.NAMES.index(name)] = value


def peak():
    """KiB that the process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (
        1024 if sys.platform == "darwin" else 1)


def limit_memory(mebibytes):
    """No more address space than there is now, and so many MiB; where the system can tell."""
    status = Path("/proc/self/status")
    # sanitizers map terabytes at any time
    if not mebibytes or not status.exists() or "asan" in os.environ.get("LD_PRELOAD", ""):
        return
    now = int(re.search(r"VmSize:\s+(\d+)", status.read_text())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (now + (mebibytes << 20),) * 2)


def outcome(target, case, path, shared):
    """None, or the kind of finding and its text."""
    try:
        signal.setitimer(signal.ITIMER_PROF, target.seconds)
        try:
            target.run(case, path)
            shared["accepted"] += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except TookLong:
        return "hang", f"more than {target.seconds:g} seconds of processor time\n{traceback.format_exc()}"
    except target.allowed as error:
        if not str(error).strip():
            return f"{type(error).__name__} without a message", traceback.format_exc()
        if _OF_MEMORY.search(str(error)):
            return "a refusal for want of memory", traceback.format_exc()
        shared["refused"] += 1
    except Exception as error:
        if isinstance(error, ValueError) and str(error) == "refused":
            shared["refused"] += 1
            return None
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return f"{type(error).__name__} at {place}", traceback.format_exc()
    return None


def work(target, name, seed, numbers, shared, pipe, scratch):
    """Run cases, and tell findings; in a process of its own."""
    signal.signal(signal.SIGPROF, _alarm)
    warnings.simplefilter("ignore")
    path = Path(scratch, "case")
    limit_memory(target.mebibytes)
    highest = peak()
    for number in numbers:
        shared["number"] = number
        case = case_of(target, name, seed, number)
        start = time.process_time()
        found = outcome(target, case, path, shared)
        micros = int((time.process_time() - start) * 1e6)
        if micros > shared["slowest"]:
            shared["slowest"], shared["slowest_at"] = micros, number
        now = peak()
        if now > highest:
            if now - highest > shared["largest"]:
                shared["largest"], shared["largest_at"] = now - highest, number
            highest = now
        if found is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(f"{number}\0{found[0]}\0{found[1]}\1".encode("utf-8", "replace"))
                pipe.flush()


class Fuzzing:
    """Cases of one target, in processes that are begun anew after each crash."""

    def __init__(self, name, seed, keep):
        self.name, self.seed, self.keep = name, seed, Path(keep)
        self.target, self.shared = TARGETS[name], Shared()
        self.findings, self.n_cases = Counter(), 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.target.prepare()

    def run(self, first, cases, seconds):
        """Returns the number of findings."""
        start, number, end = time.monotonic(), first, first + cases
        deadline = start + seconds if seconds else None
        while number < end and (deadline is None or time.monotonic() < deadline):
            number = self._process(number, end, deadline)
        self.n_cases += number - first
        self._report(time.monotonic() - start)
        return sum(self.findings.values())

    def _process(self, number, end, deadline):
        """Run cases until all are done, the time is up, or the process dies; the next one."""
        reading, writing = os.pipe()
        self.shared["number"] = number - 1
        with tempfile.TemporaryDirectory(prefix="fastm4n-fuzz-", dir=_folder()) as scratch:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                os.close(reading)
                code = 1
                try:
                    with open(writing, "wb") as pipe:
                        work(self.target, self.name, self.seed, range(number, end), self.shared,
                             pipe, scratch)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            os.close(writing)
            status, told, why = self._watched(child, reading, deadline)
        for finding in filter(None, told.split(b"\1")):
            at, kind, text = finding.decode("utf-8", "replace").split("\0", 2)
            self._found(int(at), kind, text)
        if why == "done" and status == 0:
            return end
        at = self.shared["number"]
        if why == "deadline":
            return at
        kind = why if why == "hang" else (
            f"crash by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status)
            else f"crash with exit code {os.WEXITSTATUS(status)}")
        self._found(at, kind, "")
        return at + 1

    def _watched(self, child, reading, deadline):
        """Wait for a process: its status, what it told, and why it ended."""
        os.set_blocking(reading, False)
        told, seen, since = b"", None, time.monotonic()
        why = "done"
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            with contextlib.suppress(BlockingIOError):
                while part := os.read(reading, 1 << 16):
                    told += part
            if done:
                os.close(reading)
                return status, told, why
            now = time.monotonic()
            if self.shared["number"] != seen:
                seen, since = self.shared["number"], now
            if deadline is not None and now > deadline:
                why = "deadline"
                os.kill(child, signal.SIGKILL)
            elif now - since > PATIENCE * self.target.seconds:
                why = "hang"
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)

    def _found(self, number, kind, text):
        self.findings[kind] += 1
        if self.findings[kind] > MOST_KEPT:
            return
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f"{self.name}-{self.seed}-{number}"
        case = case_of(self.target, self.name, self.seed, number)
        files = case if isinstance(case, dict) else {"": case}
        for name, content in files.items():
            Path(f"{path}.{name}" if name else path).write_bytes(content)
        print(f"{self.name}: {kind}\n  case {number} of seed {self.seed}, kept as {path}\n{text}")

    def _report(self, seconds):
        shared = self.shared
        print(
            f"{self.name}: {self.n_cases} cases in {seconds:.0f} s, {shared['accepted']} taken, "
            f"{shared['refused']} refused, {sum(self.findings.values())} findings; the slowest "
            f"took {shared['slowest'] / 1e6:.3f} s (case {shared['slowest_at']}), the most memory "
            f"{shared['largest'] / 1024:.0f} MiB (case {shared['largest_at']})")
        for kind, n in self.findings.most_common():
            print(f"  {n} x {kind}")
        sys.stdout.flush()


def _folder():
    """A folder in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="all", choices=[*GROUPS, *TARGETS])
    parser.add_argument("--cases", type=int, default=10_000, help="cases of each target")
    parser.add_argument("--seconds", type=float, help="most seconds for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one case to run")
    parser.add_argument("--keep", default="fuzz", help="folder for the files of findings")
    args = parser.parse_args(argv)
    n_findings = 0
    for name in GROUPS.get(args.target, [args.target]):
        if name == "arrow" and not _has_pyarrow():
            print("arrow: left out, pyarrow is not installed")
            continue
        fuzzing = Fuzzing(name, args.seed, args.keep)
        first, cases = (0, args.cases) if args.only is None else (args.only, 1)
        n_findings += fuzzing.run(first, cases, args.seconds)
    return min(n_findings, 1)


def _has_pyarrow():
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
