"""Chains of order 1, 2 and 3: error, certified fits, and what the observed n-grams cost.

    FASTM4N_DATA=... python benchmarks/orders.py [--quick] [--only fits kernels] [--page]

writes benchmarks/results/orders.json and docs/results/orders.md. Two parts:

fits     Tamil and Twitter parts of speech by their official splits, and OCR-small, the 626 words of
         the first fold, with the other 6,251 for testing. alpha is chosen for each order among
         several on held-out sentences, Tamil's development part or a fifth of the others' training
         sequences, and the model is then fitted to all training sequences.
kernels  CPU seconds of forward-backward and of Viterbi under the automata of orders 1 to 4 of the
         training sequences of each

--quick does one data set and two orders, prints, and writes nothing; --page makes the page of the
results that are there.
"""

import argparse
import json
import time
import warnings

import numpy as np
from _data import folder
from _peers import RESULTS, ROOT, describe, environment, medians, table
from ocr import load_ocr
from sklearn.exceptions import ConvergenceWarning

from fastm4n import Sequences, SequenceTagger, SequenceVectorizer, Transitions
from fastm4n.datasets import load_conll, load_conllu
from fastm4n.inference import sum_product, viterbi
from fastm4n.inference._contexts import observed_ngrams
from fastm4n.inference.automaton import marginals, maximise
from fastm4n.tasks.chain_input import automaton_of

SURROGATES = {"log": "CRF", "max_margin": "M3N"}
ORDERS = (1, 2, 3)
# alpha times the number of training sequences
GRID = {"log": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0), "max_margin": (0.1, 0.3, 1.0, 3.0, 10.0)}
TOL, MOST_PASSES = 3e-3, 500
FILE = RESULTS / "orders.json"


def attributes(words):
    """Word, affixes of 1 to 4 characters, form, and the words beside it."""
    lower = [word.lower() for word in words]
    beside = ["(start)", *lower, "(end)"]
    rows = []
    for i, (word, low) in enumerate(zip(words, lower, strict=True)):
        row = [f"w={low}", f"w-1={beside[i]}", f"w+1={beside[i + 2]}"]
        row += [f"p={low[:n]}" for n in range(1, 5)] + [f"s={low[-n:]}" for n in range(1, 5)]
        row += [name for name, has in (
            ("capital", word[:1].isupper()), ("digit", any(map(str.isdigit, word))),
            ("hyphen", "-" in word), ("sign", not any(map(str.isalnum, word)))) if has]
        rows.append(row)
    return rows


def tamil():
    parts = [load_conllu(folder() / "pos" / f"ta_ttb-ud-{part}.conllu.gz")
             for part in ("train", "dev", "test")]
    return vectorised(parts)


def twitter():
    parts = []
    for part in ("train", "test"):
        data = load_conll(folder() / "pos" / f"tweebank_v1-{part}.conll.gz", label_column=3)
        parts.append((list(map(words_of, data.tokens)), data.labels))
    (words, tags), test = parts
    # equal tweets are held out together
    distinct = sorted(set(map(tuple, words)))
    order = np.random.RandomState(0).permutation(len(distinct))
    held = {distinct[i] for i in order[: len(distinct) // 5]}
    inner, outer = (
        [(w, t) for w, t in zip(words, tags, strict=True) if (tuple(w) in held) == out]
        for out in (False, True))
    return vectorised([tuple(zip(*inner, strict=True)), tuple(zip(*outer, strict=True)), test])


def words_of(tokens):
    return [token[1] for token in tokens]


def vectorised(parts):
    """(X, y) of the three parts; features are those of the first two."""
    parts = [(part.tokens, part.labels) if hasattr(part, "tokens") else part for part in parts]
    vectorizer = SequenceVectorizer()
    vectorizer.fit([attributes(words) for part in parts[:2] for words in part[0]])
    return [
        (vectorizer.transform([attributes(words) for words in sentences]), Sequences.from_list(
            [np.array(part) for part in labels]))
        for sentences, labels in parts]


def ocr():
    X, y, split = load_ocr()
    small = np.random.RandomState(0).permutation(np.flatnonzero(split == 0))
    cut = int(0.8 * len(small))
    return [(X[rows], y[rows]) for rows in (small[:cut], small[cut:], np.flatnonzero(split))]


DATA = {"Tamil": tamil, "Twitter": twitter, "OCR": ocr}


def joined(*parts):
    """Several lists of sequences as one."""
    return [matrix for part in parts for matrix in part]


def fitted(surrogate, order, c, X, y):
    model = SequenceTagger(
        surrogate, transitions=Transitions(order=order), alpha=c / len(X), tol=TOL,
        max_iter=MOST_PASSES, random_state=0)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return model, time.process_time() - start


def errors(model, X, y):
    """Per cent of wrong labels, and of sequences with one."""
    wrong = model.predict(X).values != y.values
    return {
        "token": 100 * float(wrong.mean()),
        "sequence": 100 * float(np.mean(np.add.reduceat(wrong, y.offsets[:-1]) > 0)),
    }


def run_fits(name, surrogate, order):
    """The model of the best alpha of the grid, fitted to all training sequences."""
    inner, held, test = DATA[name]()
    tried = []
    for c in GRID[surrogate]:
        model, _ = fitted(surrogate, order, c, *inner)
        tried.append((errors(model, *held)["token"], c))
    c = min(tried)[1]
    X = Sequences.from_list(joined(inner[0], held[0]))
    y = Sequences.from_list(joined(inner[1], held[1]))
    model, seconds = fitted(surrogate, order, c, X, y)
    _, states = counted(model.classes_, y, order)
    return {
        "data": name, "surrogate": surrogate, "order": order, "alpha_n": c,
        "n": len(X), "n_labels": len(model.classes_), **errors(model, *test), "cpu": seconds,
        "gap": float(model.relative_gap_), "passes": int(model.n_iter_),
        "ngrams": len(getattr(model, "ngrams_", ())), **states,
    }


def counted(classes, y, order):
    """The automaton of the n-grams of y, and its sizes."""
    codes = np.searchsorted(classes, y.values)
    automaton = automaton_of(classes, observed_ngrams(codes, y.offsets, order), None)
    return automaton, {
        "states": automaton.n_states, "arcs": automaton.n_arcs, "classes": automaton.n_classes}


def run_kernels(name, order, repeats=5):
    """CPU microseconds a position, of a long sequence of random scores."""
    (_, y), _, _ = DATA[name]()
    classes = np.unique(y.values)
    automaton, sizes = counted(classes, y, order)
    rng = np.random.RandomState(0)
    n_positions = 1000
    unary, more = rng.normal(size=(n_positions, len(classes))), rng.normal(size=automaton.n_more)
    tasks = {
        "marginals": lambda: marginals(unary, automaton, more),
        "best": lambda: maximise(unary, automaton, more),
    }
    if order == 1:
        pairs = rng.normal(size=(len(classes),) * 2)
        tasks["chain_marginals"] = lambda: sum_product(unary, pairs, edges="sum")
        tasks["chain_best"] = lambda: viterbi(unary, pairs)
    seconds = medians(tasks, repeats)
    return {
        "data": name, "order": order, "n_labels": len(classes), **sizes,
        **{key: 1e6 * value / n_positions for key, value in seconds.items()},
    }


def write_page(results):
    rows = []
    for row in results["fits"]:
        rows.append((
            row["data"], SURROGATES[row["surrogate"]], row["order"], f"{row['token']:.2f}",
            f"{row['sequence']:.1f}", row["states"], row["ngrams"], f"{row['alpha_n']:g}",
            row["passes"], f"{row['cpu']:.1f}",
            "" if row["gap"] <= TOL else f"({row['gap']:.1e})"))
    fits = table("Error and cost of whole fits", (
        "data", "model", "order", "wrong labels, %", "wrong sequences, %", "states", "n-grams",
        "alpha n", "passes", "CPU s", "gap left"), rows)
    rows = []
    for row in results["kernels"]:
        first = next(
            other for other in results["kernels"]
            if (other["data"], other["order"]) == (row["data"], 1))
        if row["order"] == 1:
            rows.append((
                row["data"], row["n_labels"], "1, kernel of chains", "", "", "",
                f"{row['chain_marginals']:.2f}", f"{row['chain_best']:.2f}", "",
                f"{row['chain_marginals'] / first['marginals']:.1f}"))
        rows.append((
            row["data"], row["n_labels"], row["order"], row["states"], row["arcs"],
            f"{row['n_labels'] ** (row['order'] + 1):,}", f"{row['marginals']:.2f}",
            f"{row['best']:.2f}", f"{row['arcs'] / first['arcs']:.1f}",
            f"{row['marginals'] / first['marginals']:.1f}"))
    kernels = table("Cost of the recursions", (
        "data", "R", "order", "states", "arcs", "R^(order + 1)", "marginals, µs a position",
        "Viterbi, µs a position", "arcs / those of order 1", "marginals / order 1"), rows)
    text = PAGE.format(
        tol=f"{TOL:g}", environment=describe(results["environment"]), fits=fits, kernels=kernels,
        reading=results.get("reading", ""))
    (ROOT / "docs" / "results" / "orders.md").write_text(text)


PAGE = """# Chains of higher order

`Transitions(order=q)` lets a label depend on the q labels before it, through weights of the
n-grams of labels that occur in the training data; see the
[user guide](../guide/constraints.md). This page says what that is worth, and
what it costs. `benchmarks/orders.py` makes it. {environment}

Tamil and Twitter are parts of speech by their official splits, from the word, its affixes and its
neighbours; OCR is trained on the 626 words of the first fold and tested on the other 6,251. alpha
is chosen for each row on held-out sequences, which are few, so that it is not always the best one for
the test; fits end at a certified gap of {tol} of the
objective at zero weights. CPU seconds are those of the last fit, one thread.

{fits}
{kernels}
A position costs an addition for each arc, and some operations for each n-gram: the recursions grow
with the contexts that have been observed, times the labels, and not with the number of all n-grams,
the column of R^(order + 1). Times are of one sequence of 1,000 positions with random scores. Fits of
order 1 use the kernel of chains, whose loops over labels are vectors, and which is several times as
fast as the automaton of the same order: that is the first step in the cost of fits.

What it is worth depends on the data. The words of OCR are 55 distinct ones, each written many times,
so that longer n-grams all but spell them: the error falls to a quarter. A part of speech says less of
the one three words on. There the M3N of order 2 is a little better than that of order 1, by less than
what 120 or 201 sentences can tell apart; order 3 has more weights than these sentences can choose,
and is no better.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", nargs="+", choices=("fits", "kernels"), default=("fits", "kernels"))
    options = parser.parse_args()
    if folder() is None:
        print("FASTM4N_DATA names no folder: nothing is measured.")
        return
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    if options.page:
        write_page(results)
        return
    names, orders = (("Tamil",), (1, 2)) if options.quick else (tuple(DATA), ORDERS)
    if "kernels" in options.only:
        results["kernels"] = [
            run_kernels(name, order) for name in names for order in (*orders, 4)]
    if "fits" in options.only:
        results["fits"] = []
        for name in names:
            for surrogate in SURROGATES:
                for order in orders:
                    results["fits"].append(run_fits(name, surrogate, order))
                    print(results["fits"][-1], flush=True)
    if options.quick:
        print(results)
        return
    results["environment"] = environment("scikit-learn", "SciPy")
    FILE.write_text(json.dumps(results, indent=1) + "\n")
    write_page(results)


if __name__ == "__main__":
    main()
