"""Where two features meet: fits that once crashed, or were certified for another problem.

The table of cells (`tests/test_table.py`) walks such meetings by itself. These are inputs that users
gave.
"""

import itertools
import warnings

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from fastm4n import (
    BlockFrankWolfe,
    CalibratedTagger,
    ConformalTagger,
    Graphs,
    GraphTagger,
    InteriorPoint,
    LabelNewton,
    LabelRanker,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    OutOfCore,
    QuasiNewton,
    SequenceTagger,
    Transitions,
    checkpointing,
    load_model,
    save_model,
)
from fastm4n.penalties import L2, ElasticNet, Group
from fastm4n.research import Boost
from fastm4n.solvers.base import Solver
from fastm4n.solvers.certificates import CertificateError, checked_gap


def grids(n, height, width, labels, *, columns=3, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = Graphs.from_grid([rng.normal(size=(height, width, columns)) for _ in range(n)], **options)
    return X, [rng.integers(labels, size=height * width) for _ in range(n)]


# ------------------------------------------------------------------ graphs with cycles


@pytest.mark.parametrize("options", [{}, {"contrast": False}], ids=str)
@pytest.mark.parametrize("pairwise", ["full", "symmetric", "potts"])
def test_default_fits_of_grids_with_three_labels(options, pairwise):
    """L-BFGS asked linear programs for marginals, and the process ended."""
    X, y = grids(4, 10, 12, 3, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger = GraphTagger("max_margin", pairwise=pairwise, max_iter=5).fit(X, y)
    assert tagger.oracle_ == "decomposition" and tagger.history_["policy"][-1] == "cutting_planes"
    assert tagger.primal_objective_ >= tagger.dual_objective_


def test_default_fits_of_a_column_out_of_scale():
    rng = np.random.default_rng(0)
    X = Graphs.from_grid([rng.integers(256, size=(6, 6)).astype(float) for _ in range(3)])
    y = [rng.integers(3, size=36) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger = GraphTagger("max_margin", max_iter=5).fit(X, y)
    assert 0.0 <= tagger.relative_gap_ <= 1.0


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_a_solver_of_marginals_over_linear_programs(surrogate):
    X, y = grids(3, 4, 4, 3)
    tagger = GraphTagger(surrogate, solver=QuasiNewton(), inference="lp")
    if surrogate == "log":
        assert tagger.fit(X, y).relative_gap_ <= 1e-3
        return
    with pytest.raises(ValueError, match="QuasiNewton.*oracle_='decomposition'|max_min.*by oracle"):
        tagger.fit(X, y)


# ----------------------------------------------------------------------- tied weights


@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
@pytest.mark.parametrize("penalty, message", [
    (ElasticNet(0.5, weights={"coef": 0.0, "edge_intercept": [[0.0, 5.0], [0.0, 0.0]]}),
     r"weights\['edge_intercept'\] has 5 for the labels \(0, 1\) and 0 for \(1, 0\)"),
    (L2(bounds={"edge_intercept": ([[0, -1], [0, 0]], None)}), r"bounds\['edge_intercept'\]"),
    (L2(bounds={"edge_coef": (None, [[0, 1], [2, 0]])}), r"bounds\['edge_coef'\]"),
], ids=str)
def test_symmetric_pairs_have_symmetric_penalties(surrogate, penalty, message):
    """One weight had two penalties, and the dual value was that of another problem."""
    X, y = grids(3, 3, 3, 2)
    tagger = GraphTagger(surrogate, pairwise="symmetric", penalty=penalty, tol=1e-3)
    with pytest.raises(ValueError, match=message):
        tagger.fit(X, y)
    assert tagger.set_params(pairwise="full").fit(X, y).relative_gap_ <= 1e-3


def test_symmetric_penalties_of_symmetric_pairs():
    X, y = grids(3, 3, 3, 2)
    table = [[0.0, 5.0], [5.0, 0.0]]
    tagger = GraphTagger(
        "log", pairwise="symmetric",
        penalty=ElasticNet(0.5, weights={"edge_intercept": table})).fit(X, y)
    assert tagger.relative_gap_ <= 1e-3
    assert_allclose(tagger.edge_intercept_, tagger.edge_intercept_.swapaxes(1, 2))


# ------------------------------------------------------------------------ partial_fit


def halves(cls):
    X, y = load_iris(return_X_y=True)
    if cls is SequenceTagger:
        return [([*X[i::2].reshape(-1, 5, 4)], [*y[i::2].reshape(-1, 5)]) for i in (0, 1)]
    return [(X[i::2], y[i::2]) for i in (0, 1)]


@pytest.mark.parametrize(("cls", "surrogate", "penalty"), covering(itertools.product(
    [MulticlassClassifier, OrdinalClassifier, SequenceTagger], ["max_margin", "max_min", "log"],
    ["l1", ElasticNet(0.97), ElasticNet(1.0, bounds=(-1, 1))])), ids=str)
def test_calls_under_sparse_penalties(cls, surrogate, penalty):
    """Weights left by proximal points were taken for those of another solver."""
    first, second = halves(cls)
    options = dict(surrogate=surrogate, penalty=penalty, alpha=0.05, tol=1e-2, random_state=0)
    calls = cls(**options).partial_fit(*first).partial_fit(*second)
    whole = cls(**options).fit(
        np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]))
    # each is above the optimum by its gap at most
    apart = abs(calls.primal_objective_ - whole.primal_objective_)
    assert apart <= max(calls.duality_gap_, whole.duality_gap_)
    assert calls.dual_objective_ <= whole.primal_objective_ + 1e-12


@pytest.mark.parametrize("cls", [MulticlassClassifier, OrdinalClassifier, SequenceTagger])
@pytest.mark.parametrize("road", ["fit", "file", "warm start", "out of core"])
def test_partial_fit_after_a_fit_forgets_nothing(cls, road, tmp_path):
    """Taggers in memory go on from the weights; whatever cannot refuses."""
    first, second = halves(cls)
    model = cls("log", warm_start=road == "warm start")
    if road == "out of core":
        model.set_params(solver=OutOfCore())
    model.fit(*first)
    if road == "file":
        save_model(model, tmp_path / "model.fm4n")
        model = load_model(tmp_path / "model.fm4n")
    before = model.coef_.copy()
    if cls is SequenceTagger and road != "out of core":
        model.partial_fit(*second)
        change = np.linalg.norm(model.coef_ - before)
        assert model.certified_for_ == "change" and 0 < change < np.linalg.norm(before)
        return
    with pytest.raises(ValueError, match="would be forgotten|in memory only"):
        model.partial_fit(*second)
    assert np.array_equal(model.coef_, before)


@pytest.mark.parametrize("cls", [MulticlassClassifier, SequenceTagger])
@pytest.mark.parametrize("solver", ["auto", BlockFrankWolfe(), OutOfCore()], ids=str)
def test_interrupted_calls_do_not_count(cls, solver):
    first, second = halves(cls)

    def interrupt(row):
        raise KeyboardInterrupt

    model = cls("log", solver=solver, random_state=0)
    for X, y in (first, second):
        with pytest.raises(KeyboardInterrupt):
            model.set_params(callback=interrupt).partial_fit(X, y)
        assert model.interrupted_
        model.set_params(callback=None).partial_fit(X, y)
        assert not model.interrupted_
    whole = cls("log", random_state=0).fit(
        np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]))
    assert_allclose(model.primal_objective_, whole.primal_objective_, rtol=2e-2)


@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
@pytest.mark.parametrize("states", ["all", "observed"])
def test_warm_starts_with_other_labels(surrogate, states):
    """Transitions of the labels that there were before were looked up among those of now."""
    X, more = attributes(WORDS), WORDS
    fewer = [["O" if label == "I-x" else label for label in labels] for labels in WORDS]
    options = dict(surrogate=surrogate, states=states, random_state=0)
    model = SequenceTagger(warm_start=True, **options)
    for y in (more, fewer, more):
        fresh = SequenceTagger(**options).fit(X, y)
        assert_allclose(model.fit(X, y).coef_, fresh.coef_)


@pytest.mark.parametrize(("surrogate", "penalty", "road"), list(itertools.product(
    ["log", "max_margin", "max_min"], ["l1", "elasticnet"], ["fit", "partial_fit"])), ids=str)
def test_proximal_points_from_a_model_with_more_weights(surrogate, penalty, road):
    """Centres had weights of an intercept and of transitions that the fit had not."""
    (X, y), _ = halves(SequenceTagger)
    options = dict(
        surrogate=surrogate, penalty=penalty, alpha=0.02, random_state=0, warm_start=True)
    model, few = SequenceTagger(**options), dict(fit_intercept=False, transitions=False)
    getattr(model, road)(X, y)
    more = getattr(model.set_params(**few), road)
    more(X, y) if road == "fit" else more(X[:1], y[:1])
    assert not any(part.any() for part in (
        model.intercept_, model.start_coef_, model.end_coef_, model.transition_coef_))
    if road == "partial_fit":
        X, y = [*X, X[0]], [*y, y[0]]
    fresh = SequenceTagger(**options).set_params(**few).fit(X, y)
    apart = abs(model.primal_objective_ - fresh.primal_objective_)
    assert apart <= max(model.duality_gap_, fresh.duality_gap_)


# ----------------------------------------------------------------- labels without pairs


@pytest.mark.parametrize(("surrogate", "penalty", "shape"), covering(itertools.product(
    ["max_margin", "max_min", "log", Boost()],
    ["l2", "l1", "elasticnet", ElasticNet(0.98), Group(0.5)],
    [(3, "none"), (1, "tree"), (1, "complete"), (3, "tree")])), ids=str)
def test_label_sets_without_pairs(surrogate, penalty, shape):
    """Pairs that there are not had no penalty, and boosting asked for a method of the outputs."""
    n_labels, graph = shape
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 4)), rng.integers(2, size=(20, n_labels))
    clf = MultiLabelClassifier(surrogate, graph=graph, penalty=penalty, alpha=0.05,
                               fit_intercept=True).fit(X, y)
    assert clf.relative_gap_ <= 1e-3 or penalty == "l1"
    assert clf.oracle_ == ("labels" if len(clf.edges_) == 0 else clf.oracle_)
    assert clf.predict(X).shape == y.shape


@pytest.mark.parametrize("n", range(1, 10))
def test_a_few_rankings_by_the_interior_point_method(n):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 3)), np.array([rng.permutation(4) for _ in range(n)])
    options = dict(cost="zero_one", tol=1e-3, alpha=0.1)
    ranker = LabelRanker(solver=InteriorPoint(), **options).fit(X, y)
    blocks = LabelRanker(solver=BlockFrankWolfe(), **options).fit(X, y)
    assert ranker.relative_gap_ <= 1e-3
    assert_allclose(ranker.primal_objective_, blocks.primal_objective_, atol=2e-2)


# -------------------------------------------------------------------- taggers of attributes


WORDS = [["O", "B-x", "I-x"], ["B-x"], [], ["O", "O", "B-x", "I-x"], ["B-x", "O"], ["I-x", "O", "O"]]


def attributes(y, seed=0):
    rng = np.random.default_rng(seed)
    return [[{f"word={label}{rng.integers(2)}": 1.0, "bias": 1.0, "size": rng.normal()}
             for label in labels] for labels in y]


def opened_objective(tagger, X, y, ratio):
    """The objective of labels that are not all known, labelling by labelling."""
    classes, losses = tagger.classes_.tolist(), []
    for x in tagger.vectorizer_.transform(X):
        labels = y[len(losses)]
        paths = np.array(list(itertools.product(range(len(classes)), repeat=len(labels))))
        rows = x.toarray() @ tagger.coef_.T + tagger.intercept_
        if len(rows):
            rows[0] += tagger.start_coef_
            rows[-1] += tagger.end_coef_
        scores, costs, inside = np.zeros((3, len(paths)))
        for t, label in enumerate(labels):
            may_be = {label} if isinstance(label, str) else set(classes) if label is None else label
            is_right = np.isin(paths[:, t], [classes.index(one) for one in may_be])
            scores += rows[t, paths[:, t]]
            scores += tagger.transition_coef_[paths[:, t - 1], paths[:, t]] if t else 0.0
            costs += ~is_right
            inside += is_right
        known = scores[inside == len(labels)]
        losses.append(
            np.logaddexp.reduce(scores) - np.logaddexp.reduce(known)
            if tagger.surrogate == "log" else np.max(scores + costs) - known.max())
    weights = np.concatenate([part.ravel() for part in (
        tagger.coef_, tagger.start_coef_, tagger.end_coef_, tagger.transition_coef_)])
    square = weights @ weights * (1.0 - ratio) + tagger.intercept_ @ tagger.intercept_ * (
        (1.0 - ratio) or 1.0)
    n = sum(map(bool, y))
    return sum(losses) / n + tagger.alpha_ * (0.5 * square + ratio * np.sum(np.abs(weights)))


@pytest.mark.parametrize("alpha", [0.004, 0.05])
@pytest.mark.parametrize("penalty, ratio", [("l2", 0.0), ("elasticnet", 0.5), ("l1", 1.0)])
@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_rounds_of_completions_keep_the_penalty(surrogate, penalty, ratio, alpha):
    """The first rounds of margins, of the log surrogate, left the quadratic term of theirs."""
    X, y = attributes(WORDS), [list(labels) for labels in WORDS]
    y[0][1], y[3][0] = None, {"O", "B-x"}
    tagger = SequenceTagger(
        surrogate, penalty=penalty, alpha=alpha, tol=1e-2, random_state=0).fit(X, y)
    best = tagger.history_["objective"].min()
    assert_allclose(opened_objective(tagger, X, y, ratio), best, rtol=1e-6)
    assert tagger.certified_for_ == "completions" and (tagger.history_["gap"] >= 0.0).all()


@pytest.mark.parametrize("options", [{}, {"constraints": "(O|B-x|I-x)*"}, {
    "transitions": Transitions(features=[0])}], ids=str)
def test_scores_that_overflow_name_the_sequence(options):
    X = attributes(WORDS)
    tagger = SequenceTagger(random_state=0, **options).fit(X, WORDS)
    names = tagger.vectorizer_.feature_names_
    tagger.coef_[:, names.index("size")] = 1e300, -1e300, 1e300
    X[3][1]["size"] = 1e300
    for call in (
            tagger.predict, tagger.predict_marginals, tagger.entropy, tagger.predict_spans,
            lambda X: tagger.log_probability(X, WORDS), lambda X: tagger.predict_kbest(X, 2)):
        with pytest.raises(ValueError, match=r"X\[3\] has values at position 1 whose scores over"):
            call(X)


def test_scores_that_overflow_as_they_add_up():
    tagger = SequenceTagger(random_state=0).fit(attributes(WORDS), WORDS)
    tagger.coef_ = np.zeros_like(tagger.coef_)
    tagger.coef_[0, tagger.vectorizer_.feature_names_.index("bias")] = 1e308
    X = attributes([["O"], ["O", "O"]])
    for call in (
            tagger.predict, tagger.predict_marginals, tagger.entropy, tagger.predict_spans,
            lambda X: tagger.predict_kbest(X, 2)):
        call(X[:1])
        for some in (X[1:], [*X[1:], *X]):
            with pytest.raises(ValueError, match=r"X\[0\] has values whose scores overflow as pos"):
                call(some)


@pytest.mark.parametrize("make", [np.str_, np.int64, np.float32, np.bool_], ids=str)
def test_labels_are_those_of_python(make, tmp_path):
    """Models of NumPy's scalars, and of `classes` after a fit, could not be written."""
    names = dict(zip(["O", "B-x", "I-x"], [1, 0, 1] if make is np.bool_ else [1, 0, 2], strict=True))
    given = [[make(names[label]) for label in labels] for labels in WORDS]
    X, plain = attributes(WORDS), [[label.item() for label in labels] for labels in given]
    classes = np.unique([label for labels in given for label in labels])
    taggers = (
        SequenceTagger(random_state=0).fit(X, given),
        SequenceTagger(random_state=0).fit(X, plain).partial_fit(X, plain, classes=classes),
        SequenceTagger(random_state=0).fit(X, [[{given[0][0]}, *given[0][1:]], *given[1:]]))
    whole = SequenceTagger(random_state=0).fit(X, plain)
    assert np.array_equal(whole.coef_, taggers[0].coef_)
    weighted = SequenceTagger(class_weight=dict.fromkeys(classes, 2.0), random_state=0).fit(X, plain)
    for tagger in (*taggers, weighted):
        assert tagger.classes_.dtype == whole.classes_.dtype
        assert tagger.classes_.tolist() == whole.classes_.tolist()
        save_model(tagger, tmp_path / "model.fm4n")
        assert list(map(list, load_model(tmp_path / "model.fm4n").predict(X))) == list(
            map(list, tagger.predict(X)))


@pytest.mark.parametrize("wrapper", [CalibratedTagger, ConformalTagger])
def test_errors_of_held_out_sequences_have_their_numbers(wrapper):
    rng = np.random.default_rng(0)
    X, y = attributes(WORDS * 10), [rng.permutation(labels).tolist() for labels in WORDS * 10]
    y[57][1] = None
    for seed in range(9):
        tagger = wrapper(SequenceTagger(random_state=0), random_state=seed, calibration_size=0.5)
        try:
            tagger.fit(X, y)
        except ValueError as error:
            assert str(error).startswith("y[57] has None at position 1")
            break
    else:
        pytest.fail("the sequence was never held out")


# ------------------------------------------------------------------------ certificates


def objective(X, y, coef, intercept, surrogate, alpha, penalty):
    """P by hand, of single labels."""
    scores = X @ coef.T + intercept
    rows = np.arange(len(y))
    if surrogate == "log":
        losses = np.logaddexp.reduce(scores, axis=1)
    elif surrogate == "max_margin":
        raised = scores + 1.0
        raised[rows, y] -= 1.0
        losses = raised.max(axis=1)
    else:
        ordered = -np.sort(-scores, axis=1)
        sizes = np.arange(1, scores.shape[1] + 1)
        losses = np.max(1.0 + (np.cumsum(ordered, axis=1) - 1.0) / sizes, axis=1)
    ratio, w = getattr(penalty, "l1_ratio", 0.0), coef.ravel()
    l1 = np.sum(np.abs(w))
    if isinstance(penalty, Group):
        l1 = np.sum(np.sqrt(np.sum(coef**2, axis=0)))
    modulus = 1.0 - ratio
    omega = 0.5 * modulus * w @ w + ratio * l1
    omega += 0.5 * (modulus or 1.0) * intercept @ intercept
    return np.mean(losses - scores[rows, y]) + alpha * omega


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
@pytest.mark.parametrize("penalty", [
    L2(), L2(bounds=(0.2, 0.5)), ElasticNet(), ElasticNet(0.5, bounds=(0.1, 0.5)), ElasticNet(0.98),
    ElasticNet(1.0), ElasticNet(1.0, bounds=(0.1, 0.4)), Group()], ids=str)
def test_weights_are_never_worse_than_those_nearest_to_zero(surrogate, penalty):
    """And the primal objective is that of the weights that are returned, at any tolerance."""
    rng = np.random.default_rng(0)
    X, y = 30.0 * rng.normal(size=(40, 3)), rng.integers(3, size=40)
    low, high = getattr(penalty, "bounds", None) or (-np.inf, np.inf)
    nearest = np.clip(np.zeros((3, 3)), low, high), np.zeros(3)
    worst = objective(X, y, *nearest, surrogate, 1e-3, penalty)
    solvers = "auto", BlockFrankWolfe(accelerate=False), LabelNewton(), OutOfCore(memory=0.005)
    for solver, tol, passes, stops in covering(itertools.product(
            solvers, (0.0, 0.9, 0.999), (1, 2), (False, True))):
        clf = MulticlassClassifier(
            surrogate, alpha=1e-3, penalty=penalty, tol=tol, max_iter=passes, solver=solver,
            random_state=0, callback=(lambda row: True) if stops else None)
        try:
            clf.fit(X, y)
        except ValueError as error:
            assert "solver=" in str(error) or "penalty=" in str(error)
            continue
        found = objective(X, y, clf.coef_, clf.intercept_, surrogate, 1e-3, penalty)
        assert found <= worst + 1e-9
        assert_allclose(clf.primal_objective_, found, rtol=1e-8)


@pytest.mark.parametrize("solver", [LabelNewton(), QuasiNewton(), BlockFrankWolfe()], ids=str)
def test_warm_starts_far_away(solver):
    """From the weights of another alpha, worse than none at all."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), rng.integers(3, size=30)
    model = MulticlassClassifier("log", alpha=1e-6, warm_start=True, solver=solver).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(alpha=1e3, max_iter=1, tol=0.0).fit(X, y)
    assert model.primal_objective_ <= np.log(3) + 1e-12


def test_a_dual_above_the_primal_is_an_error():
    assert checked_gap(1.0, 0.5) == 0.5
    assert checked_gap(1.0, 1.0 + 1e-10) == 0.0
    for slack in (0.0, 1e-8):
        with pytest.raises(CertificateError, match="please report it"):
            checked_gap(1.0, 1.0 + 3e-9 + 2.0 * slack, slack)
    assert checked_gap(1.0, 1.0 + 1e-8, 1e-8) == 0.0
    assert checked_gap(np.inf, -np.inf) == np.inf


def test_a_wrong_closed_form_is_an_error(monkeypatch):
    """Not a gap of zero: the dual value of a map whose conjugate is too small."""
    from fastm4n.features import LinearFeatures

    class Wrong(LinearFeatures):
        def weight_norm(self):
            return 0.2 * super().weight_norm()

    monkeypatch.setattr("fastm4n.tasks.vectors.LinearFeatures", Wrong)
    X, y = load_iris(return_X_y=True)
    with pytest.raises(CertificateError, match="above the primal"):
        MulticlassClassifier(
            "max_margin", alpha=0.01, solver=BlockFrankWolfe(), random_state=0).fit(X, y)


# ---------------------------------------------------------------------------- solvers


def test_every_solver_says_what_it_refuses():
    assert set(Solver.known) >= {
        "BlockFrankWolfe", "LabelNewton", "QuasiNewton", "InteriorPoint", "OutOfCore"}
    for solver in Solver.known.values():
        assert {"reason", "cost", "solve"} <= vars(solver).keys(), solver


def test_the_same_fit_within_checkpoints(tmp_path):
    """Another solver was taken, whether anything was written or not."""
    X, y = load_iris(return_X_y=True)
    for model in (
        MulticlassClassifier("log", random_state=0),
        MulticlassClassifier("max_margin", alpha=1e-5, random_state=0),
        MulticlassClassifier("log", penalty="l1", random_state=0),
    ):
        plain = model.fit(X, y).coef_
        with checkpointing(tmp_path / "fit.fm4n"):
            assert np.array_equal(model.fit(X, y).coef_, plain)
