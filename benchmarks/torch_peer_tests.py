"""The tests of pytorch-crf, run on `fastm4n.torch.CRF`.

    git clone https://github.com/kmkurn/pytorch-crf
    python benchmarks/torch_peer_tests.py --source pytorch-crf

prints a Markdown table of tests, with the reason of each that fails, and exits with 1 if one fails
for a reason that is not expected. Expected are TorchScript, another wording of the right error, and
masks that pytorch-crf refuses but our CRF takes. The tests import ``torchcrf``: they run in a
temporary folder, where a module of this name has our CRF. `pytest` runs them. Source distributions
of pytorch-crf have no tests, so the source is a clone. Its license is MIT; nothing of it is kept.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from _peers import describe, environment, rows_of

EXPECTED = ("TorchScript", "wording", "taken on purpose")
CLONE = "git clone https://github.com/kmkurn/pytorch-crf"
MODULE = "from fastm4n.torch import CRF\n"


def reports(tests):
    """(name, None or the failure's text) of each test of a file, run on our CRF."""
    root = str(Path(__file__).resolve().parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "torchcrf.py").write_text(MODULE)
        (folder / "test_crf.py").write_text(tests.read_text("utf-8"), "utf-8")
        path = os.pathsep.join([str(folder), root, os.environ.get("PYTHONPATH", "")])
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short",
             "-W", "ignore", "--junit-xml=report.xml", "test_crf.py"],
            cwd=folder, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        # 1: some fail
        if run.returncode not in (0, 1):
            sys.exit(f"pytest ended with status {run.returncode}:\n{run.stdout}")
        for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
            name = case.get("classname").rpartition(".")[2] + "." + case.get("name")
            bad = [part for part in case if part.tag in ("failure", "error", "skipped")]
            yield name, bad[0].get("message") if bad else None


def reason(name, message):
    """Why a test fails: one of EXPECTED, or what it says."""
    if "TorchScript" in name:
        return "TorchScript"
    if name.endswith("first_timestep_mask_is_not_all_on"):
        return "taken on purpose: rows without positions, and padding on the left"
    # the right error was raised, with another sentence
    wording = re.search(r"assert ['\"].*?['\"] in (['\"])(.*)\1", message.splitlines()[0])
    return f"wording: {wording[2]}" if wording else " ".join(message.split())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help=f"folder of `{CLONE}`")
    tests = parser.parse_args().source / "tests" / "test_crf.py"
    if not tests.is_file():
        sys.exit(f"{tests} does not exist: {CLONE}, and name its folder.")
    rows, others = [], 0
    for name, message in reports(tests):
        why = "" if message is None else reason(name, message)
        others += bool(why) and not why.startswith(EXPECTED)
        rows.append((name, "failed" if why else "passed", why))
    print(describe(environment("torch")) + "\n")
    print(rows_of(("test", "outcome", "reason"), rows))
    passed = sum(outcome == "passed" for _, outcome, _ in rows)
    print(f"{passed} of {len(rows)} pass, {others} of the others fail for reasons not expected.")
    sys.exit(min(others, 1))


if __name__ == "__main__":
    main()
