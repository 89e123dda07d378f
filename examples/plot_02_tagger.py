"""
A first tagger, from dicts
==========================

The parts of addresses: a label for each word, from attributes in dicts.
"""

# %%
# Sentences and tags
# ------------------
# The addresses are made up by a few lines of code, so that this page needs no data.
# Numbers are those of flats or of houses, streets are named after towns, and now and
# then a part is left out: a word by itself does not say what it is, and nobody can be
# right every time.

import numpy as np

from fastm4n import SequenceTagger
from fastm4n.metrics import span_f1_score
from fastm4n.plotting import TransitionDisplay

rng = np.random.default_rng(0)
TOWNS = "Bath Derby Ely Kent Leeds London Oxford Ripon Truro York".split()
KINDS = "Street Road Lane Square".split()


def address():
    """Words and their tags: B- begins a part, I- goes on with it."""
    words, tags = [], []

    def add(kind, *parts):
        words.extend(map(str, parts))
        tags.extend([f"B-{kind}"] + [f"I-{kind}"] * (len(parts) - 1))

    if rng.random() < 0.4:
        add("FLAT", "Flat", rng.integers(1, 30))
    add("NUMBER", rng.integers(1, 200))
    names = rng.choice(TOWNS, rng.integers(1, 3), replace=False)
    add("STREET", *names, *rng.choice(KINDS, int(rng.random() < 0.7)))
    if rng.random() < 0.8:
        add("TOWN", rng.choice(TOWNS))
    return words, tags


words, tags = zip(*(address() for _ in range(300)))
print(*zip(words[0], tags[0]))

# %%
# Attributes
# ----------
# Each word is a dict: the word itself, its shape, and the words beside it. This is what
# CRFsuite and its wrappers take, and the tagger takes it as it is.


def attributes(sentence):
    padded = ["(start)", *sentence, "(end)"]
    return [
        {
            "word": word.lower(),
            "digit": word.isdigit(),
            "before": before.lower(),
            "after": after.lower(),
        }
        for before, word, after in zip(padded, padded[1:], padded[2:])
    ]


X = [attributes(sentence) for sentence in words]
tagger = SequenceTagger("log", random_state=0).fit(X[:200], tags[:200])
print(f"F1 of whole parts: {span_f1_score(tags[200:], tagger.predict(X[200:])):.3f}")
print(f"certified gap, relative: {tagger.relative_gap_:.1e}")

# %%
# A new address
# -------------
# "York" is a street here, and "Bath" a town.

new = "Flat 3 12 York Road Bath".split()
predicted = tagger.predict([attributes(new)])[0]
sure = tagger.predict_marginals([attributes(new)])[0].max(axis=1)
for word, tag, probability in zip(new, predicted, sure):
    print(f"{word:6} {tag:9} {probability:.2f}")

# %%
# What it has learnt of tags
# --------------------------
# A tagger scores which tag follows which. Red speaks for a transition, blue against it.

display = TransitionDisplay.from_estimator(tagger)

# %%
# Where to go on: :doc:`/guide/sequence_data` has files and other attributes,
# :doc:`/guide/sequence_predictions` the k best taggings, and :doc:`/guide/constraints`
# taggings that may not be.
