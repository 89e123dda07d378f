"""
More data than memory
=====================

Sequences that are written batch by batch, and a fit that reads them chunk by chunk.
"""

# %%
# A folder from batches
# ---------------------
# A generator yields the data in pieces, and no more than one of them is in memory. This
# one makes them up; a real one reads files.

import tempfile
from pathlib import Path

import numpy as np

from fastm4n import OutOfCore, Sequences, SequenceTagger
from fastm4n.plotting import DualityGapDisplay

N_LABELS, LENGTH = 5, 20


def batches(n, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        # labels that go round, with features that are noisy
        y = np.cumsum(rng.random((100, LENGTH)) < 0.3, axis=1) % N_LABELS
        X = np.eye(N_LABELS)[y] + rng.normal(size=(100, LENGTH, N_LABELS))
        yield list(X), list(y)


folder = tempfile.TemporaryDirectory()
train = Path(folder.name) / "train"
X, y = Sequences.from_batches(batches(40), train)
print(X)

# %%
# A fit that reads it
# -------------------
# ``OutOfCore`` keeps ``memory`` MiB of the data in memory, and everything else on the
# disk. It is taken by itself where an opened folder is larger than 256 MiB; here it is
# asked for, with one MiB. The certified gap is that of all the data.

tagger = SequenceTagger("log", solver=OutOfCore(memory=1), random_state=0).fit(X, y)
print(f"certified gap, relative: {tagger.relative_gap_:.1e}")
scores = [tagger.score(*batch) for batch in batches(2, seed=1)]
print(f"labels right on new data: {np.mean(scores):.3f}")
display = DualityGapDisplay.from_estimator(tagger)

# %%
# More data later
# ---------------
# ``partial_fit`` adds sequences to those that were fitted, and certifies them all
# together.

more = SequenceTagger("log", random_state=0)
for X_new, y_new in batches(3, 2):
    more.partial_fit(X_new, y_new, classes=np.arange(N_LABELS))
    print(f"certified gap, relative: {more.relative_gap_:.1e}")

# %%
# Where to go on: :doc:`/disk` has rows, graphs, formats and fits that were killed.

folder.cleanup()
