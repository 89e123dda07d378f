"""CoNLL-2000 chunking with the attributes of CRFsuite's tutorial: against python-crfsuite.

    FASTM4N_DATA=... python benchmarks/conll2000.py --all [--repeats 3]
    FASTM4N_DATA=... python benchmarks/conll2000.py optimum crfsuite fastm4n tagging page

With --all everything is measured in one run, python-crfsuite and fastm4n in turns; a part by
itself replaces its own figures in benchmarks/results/conll2000.json and leaves the others.
``page`` (done after every part) writes docs/results/conll2000.md from them.

crfsuite  L-BFGS with c1 = 0, c2 = 1 and its own stopping rule
optimum   the same, almost without a stopping rule, for the optimal loss P*
fastm4n   SequenceTagger with the log surrogate and alpha = 2 / n, which is the same problem,
          to a certified relative gap of 1e-4, and once to 1e-6; needs `optimum`
tagging   tokens a second of the models that `crfsuite` and `fastm4n` left

Times are CPU seconds of one thread, medians over the repeats. Every fit is a process of its
own, and its peak memory is that of the process, data and all.
"""

import argparse
import json
import pickle
import re
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _data import folder
from _peers import (
    RESULTS,
    ROOT,
    cpu,
    crfsuite_weights,
    describe,
    environment,
    has_package,
    in_child,
    is_child,
    medians,
    peak_memory,
    table,
    train_crfsuite,
)
from sklearn.exceptions import ConvergenceWarning

from fastm4n import SequenceTagger, SequenceVectorizer, Transitions
from fastm4n.datasets import chunking_attributes, load_conll
from fastm4n.metrics import span_f1_score

FILE = RESULTS / "conll2000.json"
PAGE = ROOT / "docs" / "results" / "conll2000.md"
MODELS = Path(tempfile.gettempdir()) / "fastm4n_conll2000"
C2 = 1.0
TARGET, CLOSE = 1e-4, 1e-6
# CRFsuite's feature.possible_states and feature.possible_transitions, and the `states` of
# SequenceTagger that has the same weights, where there is one
SETTINGS = {
    "observed, CRFsuite's default": (0, 0, "observed"),
    "observed, all transitions": (0, 1, None),
    "all pairs": (1, 1, "all"),
}
KINDS = ("prepared features", "attribute strings")
ENDLESS = dict(epsilon=1e-10, delta=1e-10, max_iterations=1500)

INTRODUCTION = """
8,936 sentences with 211,727 tokens and 22 labels; the 335,674 attributes of CRFsuite's chunking
tutorial: words and part-of-speech tags in a window of two, their bigrams and trigrams. Both sides
minimise sum -log p(y | x) + c2 ||w||^2 with c2 = 1, without intercepts, start and end weights: for
fastm4n alpha = 2 c2 / n, and its objective times n is shown. "Observed" weights are those of the
pairs of attribute and label that occur in the training data; others are zero, not forbidden.

P* is the loss of L-BFGS almost without a stopping rule, or our objective where it is lower; our
dual bound, in the second table, holds it from below. CRFsuite's seconds are generation of features
and optimisation, without writing the model; ours are the whole of `fit`. "To 1e-4" is the moment
at which the objective is within 1e-4 of P*: for fastm4n that of the first certificate so near.
"""


# Data


def read(part):
    """Sentences of "train" or "test": an iterator over their attributes, and their chunk tags.

    The attributes are made when they are asked for: neither side has to hold the strings.
    """
    data = load_conll(folder() / "conll2000" / f"{part}.txt.gz")
    return (chunking_attributes(*zip(*tokens)) for tokens in data.tokens), data.labels


def vectorized(part, vectorizer=None):
    """(Sequences of CSR rows, chunk tags, vectorizer)."""
    attributes, chunks = read(part)
    if vectorizer is None:
        vectorizer = SequenceVectorizer()
        return vectorizer.fit_transform(attributes), chunks, vectorizer
    return vectorizer.transform(attributes), chunks, vectorizer


def quality(predicted, truth):
    """Token accuracy and chunk F1, in per cent."""
    right = [p == t for a, b in zip(predicted, truth) for p, t in zip(a, b)]
    return {
        "accuracy": 100 * float(np.mean(right)),
        "f1": 100 * float(span_f1_score(truth, predicted)),
    }


def negative_log_likelihood(unary, transitions, labels, offsets):
    """Sum over sequences of log Z - score, all sequences advancing together."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = offsets[:-1][order], lengths[order]
    weights = np.exp(transitions)
    forward = unary[starts]
    for t in range(1, lengths[0]):
        n = np.searchsorted(-lengths, -t)  # those longer than t
        top = forward[:n].max(axis=1, keepdims=True)
        forward[:n] = np.log(np.exp(forward[:n] - top) @ weights) + top + unary[starts[:n] + t]
    top = forward.max(axis=1)
    log_partition = np.sum(top + np.log(np.exp(forward - top[:, np.newaxis]).sum(axis=1)))
    inside = np.ones(len(labels), dtype=bool)
    inside[offsets[:-1]] = False
    later = np.flatnonzero(inside)
    score = unary[np.arange(len(labels)), labels].sum()
    score += transitions[labels[later - 1], labels[later]].sum()
    return float(log_partition - score)


def recomputed_loss(coef, transitions, classes, X, y):
    """CRFsuite's objective, sum of -log p(y | x) + c2 ||w||^2, from the weights."""
    labels = np.searchsorted(classes, np.concatenate([np.asarray(chunks) for chunks in y]))
    unary = np.asarray(X.values @ coef.T)
    loss = negative_log_likelihood(unary, transitions, labels, X.offsets)
    return loss + C2 * float(np.sum(coef**2) + np.sum(transitions**2))


# One measurement each, in a process of its own


def run_crfsuite(setting, model, endless):
    states, transitions, _ = SETTINGS[setting]
    result = train_crfsuite(
        zip(*read("train")), model, c1=0.0, c2=C2,
        **{"feature.possible_states": states, "feature.possible_transitions": transitions},
        **(ENDLESS if endless else {}),
    )
    from pycrfsuite import Tagger

    tagger = Tagger()
    tagger.open(model)
    attributes, truth = read("test")
    return {**result, **quality([tagger.tag(x) for x in attributes], truth)}


def run_recompute(model):
    """The loss of a model that CRFsuite has written."""
    X, y, vectorizer = vectorized("train")
    columns = {name: i for i, name in enumerate(vectorizer.get_feature_names_out())}
    classes, coef, transitions = crfsuite_weights(model, columns)
    return recomputed_loss(coef, transitions, np.array(classes), X, y)


def run_fastm4n(states, model, optimum, target):
    prepare, (X, y, vectorizer) = cpu(lambda: vectorized("train"))
    n = len(X)
    # the sum of the losses at w = 0
    at_zero = X.n_tokens * np.log(len(set().union(*y)))
    tagger = SequenceTagger(
        surrogate="log", alpha=2 * C2 / n, states=states, fit_intercept=False,
        transitions=Transitions(start_end=False), tol=target * optimum / at_zero, max_iter=10_000, random_state=0,
    )
    trace = []
    before = peak_memory()
    start = time.process_time()

    def note(row):
        trace.append((time.process_time() - start, row["primal"] * n, row["dual"] * n))

    tagger.set_params(callback=note)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(X, y)
    seconds = time.process_time() - start
    peak = peak_memory()
    tagger.set_params(callback=None)
    with open(model, "wb") as stream:
        pickle.dump((vectorizer, tagger), stream)
    history = tagger.history_
    X_test, truth, _ = vectorized("test", vectorizer)
    predicted = [list(labels) for labels in tagger.predict(X_test)]
    loss = recomputed_loss(tagger.coef_, tagger.transition_coef_, tagger.classes_, X, y)
    return {
        "n": n, "nonzero_features": int(X.values.nnz), "n_columns": X.values.shape[1],
        "prepare_cpu": prepare, "cpu": seconds, "mib_before": before, "mib": peak,
        "passes": int(tagger.n_iter_), "loss": float(history["primal"][-1]) * n,
        "bound": float(np.max(history["dual"])) * n, "recomputed": loss, "trace": trace,
        **quality(predicted, truth),
    }


def run_tagging(repeats, crfsuite, ours):
    """Tokens a second: features prepared, and from attribute strings."""
    with open(ours, "rb") as stream:
        vectorizer, tagger = pickle.load(stream)
    tagger.set_params(n_jobs=1)
    test = list(read("test")[0])
    X = vectorizer.transform(test)
    functions = {
        "fastm4n, prepared features": lambda: tagger.predict(X),
        "fastm4n, attribute strings": lambda: tagger.predict(vectorizer.transform(test)),
    }
    if crfsuite:
        from pycrfsuite import ItemSequence, Tagger

        peer = Tagger()
        peer.open(crfsuite)
        items = [ItemSequence(attributes) for attributes in test]
        functions["python-crfsuite, prepared features"] = lambda: [peer.tag(x) for x in items]
        functions["python-crfsuite, attribute strings"] = lambda: [peer.tag(x) for x in test]
    seconds = medians(functions, repeats, least=0.3)
    return {name: X.n_tokens / value for name, value in seconds.items()}


TASKS = {
    "crfsuite": run_crfsuite, "recompute": run_recompute, "fastm4n": run_fastm4n,
    "tagging": run_tagging,
}


# Parts


def model_file(peer, setting):
    return str(MODELS / f"{peer}-{list(SETTINGS).index(setting)}")


def summary(runs):
    """Medians of the numbers of several runs; the other entries of the last one."""
    return {
        key: float(np.median([run[key] for run in runs])) if type(value) is float else value
        for key, value in runs[-1].items()
    } | {"repeats": len(runs)}


def read_results():
    return json.loads(FILE.read_text()) if FILE.exists() else {"runs": {}}


def save(part, setting, figures, run):
    """Replace one entry of the results file; runs that nothing is left of are dropped."""
    results = read_results()
    results.setdefault(part, {})[setting] = {"run": run["date"], **figures}
    used = {
        entry["run"] for name, entries in results.items() if name != "runs"
        for entry in entries.values()
    }
    runs = {**results["runs"], run["date"]: run}
    results["runs"] = {date: runs[date] for date in sorted(used)}
    FILE.parent.mkdir(exist_ok=True)
    text = json.dumps(results, indent=1)
    # a line for each list of numbers
    FILE.write_text(re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text) + "\n")


def measure_optimum(settings, run):
    for setting in settings:
        model = model_file("optimum", setting)
        result = in_child(__file__, "crfsuite", setting=setting, model=model, endless=True)
        result["recomputed"] = in_child(__file__, "recompute", model=model)
        del result["trace"]
        save("optimum", setting, result, run)
        show(setting, "optimum", result)


def optimum_of(setting):
    try:
        return read_results()["optimum"][setting]["loss"]
    except KeyError:
        raise SystemExit(
            f"no optimal loss of {setting!r} in {FILE}: run the part `optimum` first"
        ) from None


def measure_fits(contestants, settings, repeats, run):
    """The parts `crfsuite` and `fastm4n`; if both, in turns."""
    for setting in settings:
        states = SETTINGS[setting][2]
        runs = {name: [] for name in contestants if name == "crfsuite" or states}
        for _ in range(repeats):
            for name, results in runs.items():
                if name == "crfsuite":
                    options = dict(setting=setting, endless=False)
                else:
                    options = dict(states=states, optimum=optimum_of(setting), target=TARGET)
                results.append(in_child(__file__, name, model=model_file(name, setting), **options))
                show(setting, name, results[-1])
        for name, results in runs.items():
            figures = summary(results)
            if name == "crfsuite":
                figures["recomputed"] = in_child(
                    __file__, "recompute", model=model_file(name, setting)
                )
            else:
                close = in_child(
                    __file__, "fastm4n", states=states, model=model_file("close", setting),
                    optimum=optimum_of(setting), target=CLOSE,
                )
                show(setting, "fastm4n, close", close)
                figures["close"] = close
            save(name, setting, figures, run)


def measure_tagging(settings, repeats, run):
    for setting in settings:
        crfsuite, ours = (model_file(name, setting) for name in ("crfsuite", "fastm4n"))
        if SETTINGS[setting][2] is None:
            continue
        if not Path(ours).exists():
            raise SystemExit(f"no model {ours}: run the part `fastm4n` first")
        peer = crfsuite if has_package("python-crfsuite") and Path(crfsuite).exists() else ""
        figures = in_child(
            __file__, "tagging", repeats=2 * repeats + 1, ours=ours, crfsuite=peer
        )
        save("tagging", setting, figures, run)
        show(setting, "tagging", figures)


def show(setting, what, result):
    short = {
        key: round(value, 3) if isinstance(value, float) else value
        for key, value in result.items() if key not in ("trace", "close")
    }
    print(f"{setting}: {what}: {short}", flush=True)


# The page


def first_below(trace, loss):
    """CPU seconds at the first entry whose loss is at most `loss`, or None."""
    return next((entry[0] for entry in trace if entry[1] <= loss), None)


def seconds(value):
    return "" if value is None else f"{value:.1f}"


def write_page():
    results = read_results()
    peer, optima, ours, tagging = (
        {key: results[part][key] for key in SETTINGS if key in results.get(part, {})}
        for part in ("crfsuite", "optimum", "fastm4n", "tagging")
    )
    lines = [
        "# CoNLL-2000 chunking\n",
        "Made by `python benchmarks/conll2000.py --all`: CPU seconds of one thread, medians over\n"
        "the repeats; every fit is a process of its own, and its peak memory is that of the\n"
        "process with all that it holds.",
    ]
    if len(results["runs"]) > 1:
        lines.append("\n**Parts were measured in separate runs:**")
    lines += ["", *(f"- {describe(run)}" for run in results["runs"].values())]
    lines.append(INTRODUCTION)
    rows = []
    for setting, p in peer.items():
        if setting not in optima:
            continue
        o = ours.get(setting)
        best = optima[setting]["loss"]
        if o:
            best = min(best, o["close"]["recomputed"])
        reach = best * (1 + TARGET)
        rows.append((
            setting, "python-crfsuite", f"{p['loss']:.2f}", f"{p['loss'] / best - 1:.1e}", "",
            p["iterations"], seconds(p["cpu"]), seconds(first_below(p["trace"], reach)), "",
            f"{p['accuracy']:.2f}", f"{p['f1']:.2f}", f"{p['mib_before']:.0f}", f"{p['mib']:.0f}",
        ))
        if o:
            rows.append((
                setting, "fastm4n", f"{o['recomputed']:.2f}", f"{o['recomputed'] / best - 1:.1e}",
                f"{o['loss'] / o['bound'] - 1:.1e}", o["passes"], seconds(o["cpu"]),
                seconds(first_below(o["trace"], reach)), f"{p['cpu'] / o['cpu']:.1f}",
                f"{o['accuracy']:.2f}", f"{o['f1']:.2f}", f"{o['mib_before']:.0f}",
                f"{o['mib']:.0f}",
            ))
    if rows:
        lines.append(table("Training", (
            "weights", "contestant", "objective", "above P*, relative", "certified relative gap",
            "iterations or passes", "CPU s", "CPU s to 1e-4", "CRFsuite's CPU s / ours",
            "token accuracy %", "F1 %", "MiB before", "MiB at the peak",
        ), rows))
    rows = []
    for setting, o in optima.items():
        row = [
            setting, f"{o['n_weights']:,}", o["iterations"], seconds(o["cpu"]),
            f"{o['loss']:.4f}", f"{o['recomputed']:.4f}", f"{o['accuracy']:.2f}", f"{o['f1']:.2f}",
        ]
        close = ours.get(setting, {}).get("close")
        row += [f"{close['bound']:.4f}", f"{close['recomputed']:.4f}", close["passes"],
                seconds(close["cpu"])] if close else ["", "", "", ""]
        rows.append(row)
    if rows:
        lines.append(table("The optimum", (
            "weights", "number", "L-BFGS iterations", "CPU s", "its loss, P*", "from its weights",
            "token accuracy %", "F1 %", "our lower bound", "our objective", "passes", "CPU s",
        ), rows))
        lines.append(
            "The loss from its weights is computed from the model that CRFsuite writes, by\n"
            "the code that computes our objective from our weights: both are the same function.\n"
        )
    prepared = [
        (setting, seconds(peer.get(setting, {}).get("append_cpu")), seconds(o["prepare_cpu"]))
        for setting, o in ours.items() if setting in peer
    ]
    if prepared:
        lines.append(table("From text to the first iteration", (
            "weights", "reading, attributes and Trainer.append, CPU s",
            "reading, attributes and SequenceVectorizer, CPU s",
        ), prepared))
    rows = []
    for setting, entry in tagging.items():
        for kind in KINDS:
            speed, theirs = entry[f"fastm4n, {kind}"], entry.get(f"python-crfsuite, {kind}")
            rows.append((
                setting, kind, f"{speed:,.0f}", f"{theirs:,.0f}" if theirs else "-",
                f"{speed / theirs:.1f}" if theirs else "-",
            ))
    if rows:
        lines.append(table("Tagging the 47,377 tokens of the test set (tokens a CPU second)", (
            "weights", "given", "fastm4n", "python-crfsuite", "ratio",
        ), rows))
    PAGE.write_text("\n".join(lines))


def main():
    if is_child(TASKS):
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("crfsuite", "optimum", "fastm4n", "tagging", "page")
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    parser.add_argument("--all", action="store_true", help="every part, in one run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--settings", nargs="+", type=int, choices=range(len(SETTINGS)),
        default=list(range(len(SETTINGS))),
        help="; ".join(f"{i}: {name}" for i, name in enumerate(SETTINGS)),
    )
    args = parser.parse_args()
    chosen = set(parts) if args.all else set(args.parts)
    if not chosen or not chosen <= set(parts):
        parser.error(f"give --all or parts among {', '.join(parts)}")
    if chosen != {"page"} and (folder() is None or not (folder() / "conll2000").is_dir()):
        parser.exit(1, "set FASTM4N_DATA to the folder that holds conll2000/train.txt.gz\n")
    if chosen & {"crfsuite", "optimum"} and not has_package("python-crfsuite"):
        parser.exit(1, "the parts crfsuite and optimum need python-crfsuite\n")
    MODELS.mkdir(exist_ok=True)
    settings = [list(SETTINGS)[i] for i in args.settings]
    run = environment("SciPy", "scikit-learn", "python-crfsuite")
    if "optimum" in chosen:
        measure_optimum(settings, run)
    contestants = [name for name in ("crfsuite", "fastm4n") if name in chosen]
    if contestants:
        measure_fits(contestants, settings, args.repeats, run)
    if "tagging" in chosen:
        measure_tagging(settings, args.repeats, run)
    write_page()


if __name__ == "__main__":
    main()
