"""Members of fleets in tests, which a process imports by name."""

import os
import signal
import time

import numpy as np


class Member:
    """Answers that tell what reached it."""

    stopping = None

    def __init__(self, number):
        self.number, self.calls = number, 0

    def add(self, array, more=0.0):
        """The sum, whether it may be written to, and how many calls there were."""
        self.calls += 1
        return float(np.sum(array)) + more, array.flags.writeable, self.calls

    def echo(self, *args):
        return self.number, *args

    def pid(self):
        return os.getpid()

    def fail(self, numbers):
        if self.number in numbers:
            raise ValueError(f"member {self.number} is not content")
        return self.number

    def unspeakable(self):
        return lambda: None

    def work(self, seconds):
        """Sleep, but end early if asked to; whether it was."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.stopping is not None and self.stopping():
                return True
            time.sleep(0.01)
        return False

    def die(self, numbers, how="kill"):
        if self.number in numbers:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)
        return self.number

    def hang(self, numbers):
        if self.number in numbers:
            time.sleep(60)
        return self.number


class Picky:
    """A factory that does not succeed where a file is there."""

    def __init__(self, file):
        self.file = file

    def __call__(self):
        if os.path.exists(self.file):
            raise RuntimeError("no data today")
        return Member(0)


class Killed:
    """A factory whose process ends."""

    def __call__(self):
        os._exit(7)
