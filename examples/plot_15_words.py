"""
Letters of words
================

Handwritten letters, read one by one and as words.
"""

# %%
# Words
# -----
# The letters are scikit-learn's digits, 0 standing for a, 1 for b and so on, and each word
# is written many times. The words use ten letters. Noise makes single letters hard to
# read.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

from fastm4n import SequenceTagger
from fastm4n.plotting import TransitionDisplay

WORDS = "bad bag bead cab cage chafe decide egg face fade feed head hedge hide jade jig".split()
rng = np.random.default_rng(0)
digits = load_digits()
letters = np.array(list("abcdefghij"))[digits.target]
# words of the test set are written with other pictures
pictures = {"train": np.arange(900), "test": np.arange(900, len(letters))}


def written(n, part):
    words = rng.choice(WORDS, n)
    y = [np.array(list(word)) for word in words]
    X = [
        np.array([
            digits.data[rng.choice(pictures[part][letters[pictures[part]] == letter])]
            for letter in word
        ]) / 16
        for word in words
    ]
    return [x + rng.normal(scale=0.5, size=x.shape) for x in X], y


X, y = written(300, "train")
X_test, y_test = written(500, "test")

# %%
# One by one, and as words
# ------------------------
# The tagger has the same features of a letter, and a weight for each pair of neighbours.

svm = LinearSVC(C=0.1).fit(np.concatenate(X), np.concatenate(y))
print(f"one by one: {svm.score(np.concatenate(X_test), np.concatenate(y_test)):.3f} right")
tagger = SequenceTagger("log", random_state=0).fit(X, y)
print(f"as words: {tagger.score(X_test, y_test):.3f} right")
print(f"certified gap, relative: {tagger.relative_gap_:.1e}")

# %%
# Four words of the test set. Red letters are wrong.

figure, axes = plt.subplots(4, 6, figsize=(7, 5.6), layout="constrained")
for row, word, truth, found in zip(axes, X_test, y_test, tagger.predict(X_test[:4])):
    alone = svm.predict(word)
    for ax in row[len(word):]:
        ax.set_visible(False)
    for ax, letter, right, single, chained in zip(row, word, truth, alone, found):
        ax.imshow(letter.reshape(8, 8), cmap="Greys")
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"alone {single}", color="k" if single == right else "C3", fontsize="small")
        ax.set_xlabel(
            f"word {chained}", color="k" if chained == right else "C3", fontsize="small")

# %%
# Which letter follows which
# --------------------------
# Rows are first letters, columns second ones. Red pairs are frequent in the words.

display = TransitionDisplay.from_estimator(tagger, values=False)

# %%
# Where to go on: :doc:`/guide/sequences` has the options of taggers,
# :doc:`/results/ocr` figures on a data set of handwritten words.
