"""Python in a process of its own, with the package that the tests import, installed or not."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import fastm4n

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fastm4n.__file__).resolve().parents[1])}


def forked(function, *args):
    """A process, not yet begun, that has what this one has imported; to import it takes seconds."""
    return multiprocessing.get_context("fork").Process(target=function, args=args, daemon=True)


def run_code(code, *args, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, args)], capture_output=True, text=True,
        timeout=300, env={**ENVIRONMENT, **environment})
