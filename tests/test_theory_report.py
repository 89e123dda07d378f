"""The report of a fit, its held-out bounds and displays."""

import json
from math import isnan

import matplotlib
import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastm4n import (
    CountFactor,
    LabelRanker,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
    SequenceVectorizer,
)
from fastm4n.research import ComplexityDisplay, MarginDisplay
from fastm4n.research.theory import (
    complexity_report,
    factor_graph_complexity,
    margin_bound,
    margins,
)

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def chains():
    """A fitted tagger, with its sequences and those held out."""
    rng = np.random.default_rng(0)

    def draw(n):
        lengths = rng.integers(1, 7, n)
        X = [rng.normal(size=(length, 4)) for length in lengths]
        y = [["no", "yes", "may"] for _ in X]
        y = [np.array(names)[np.argmax(x[:, :3] + 0.5 * rng.normal(size=(len(x), 3)), axis=1)]
             for names, x in zip(y, X, strict=True)]
        return X, y

    X, y = draw(60)
    X_test, y_test = draw(40)
    model = SequenceTagger("max_min", alpha=0.1, tol=1e-6, max_iter=5000, random_state=0).fit(X, y)
    return model, X, y, X_test, y_test


@pytest.mark.parametrize("loss", ["mean", "sum", "zero_one"])
def test_report_is_made_of_its_parts(chains, loss):
    model, X, y, X_test, y_test = chains
    report = complexity_report(
        model, X, y, X_test=X_test, y_test=y_test, loss=loss, rho=[1.0, 0.5], delta=0.1,
        families=["a", "a", "b", "b"], random_state=3)
    found = margins(model, X, y, loss=loss)
    complexity = factor_graph_complexity(
        model, X, families=["a", "a", "b", "b"], random_state=3)
    assert repr(report.complexities) == repr(complexity)
    assert report.margins == pytest.approx(found.margin)
    assert len(report.bounds) == 8
    for row in report.bounds:
        assert row["empirical"] == pytest.approx(found.empirical(row["rho"], row["kind"]))
        assert row["empirical_low"] <= row["empirical"] <= row["empirical_high"]
        norm = report.summary["norms"][row["norm"]]
        assert norm <= row["radius"] <= norm * 2**0.25
        per_unit = min(each.norms[row["norm"]].closed_form for each in complexity.values())
        plain = margin_bound(
            row["empirical"], row["radius"] * per_unit, rho=row["rho"], n_examples=60, delta=0.1,
            max_loss=found.max_loss, kind=row["kind"])
        assert row["complexity"] == pytest.approx(plain.terms["complexity"])
        # the price of all bounds together
        assert row["concentration"] > plain.terms["concentration"]
        assert row["value"] == pytest.approx(
            row["empirical"] + row["complexity"] + row["concentration"])
        assert row["vacuous"] == (row["value"] >= found.max_loss)
        carlo = min(each.norms[row["norm"]].monte_carlo for each in complexity.values())
        factor = found.max_loss if row["kind"] == "mult" else 1.0
        assert row["estimate"] == pytest.approx(
            row["empirical"] + plain.terms["concentration"]
            + 4 * np.sqrt(2) / row["rho"] * factor * norm * carlo)
    assert [row["family"] for row in report.families] == [
        "a", "b", "(intercept)", "(start)", "(end)", "(transitions)"]
    assert sum(row["share_l1"] for row in report.families) == pytest.approx(1)
    coef = model.coef_
    assert report.families[1]["l2"] == pytest.approx(np.linalg.norm(coef[:, 2:]))
    of_truth = sum(
        (coef[np.searchsorted(model.classes_, labels), 2:] * x[:, 2:]).sum()
        for x, labels in zip(X, y, strict=True))
    assert report.families[1]["mean_score"] == pytest.approx(of_truth / 60)


def test_held_out_losses(chains):
    model, X, y, X_test, y_test = chains
    options = dict(X_test=X_test, y_test=y_test, n_draws=0, rho=1.0)
    predicted = model.predict(X_test)
    each = np.array([np.mean(a != b) for a, b in zip(predicted, y_test, strict=True)])
    lengths = np.array([len(labels) for labels in y_test])
    for loss, losses, largest in (
        ("mean", each, 1.0), ("sum", each * lengths, lengths.max()), ("zero_one", each > 0, 1.0),
    ):
        held = complexity_report(model, X, y, loss=loss, **options).held_out
        assert held["n_wrong"] == (each > 0).sum() and held["n_examples"] == 40
        assert held["loss"] == pytest.approx(losses.mean())
        assert held["max_loss"] == largest
        assert held["loss"] <= held["empirical_bernstein"]["value"]
    # a label that the model does not know is an error, here as in `score`
    with_new = [np.append(labels[:-1], "new") for labels in y_test]
    held = complexity_report(model, X, y, **{**options, "y_test": with_new}).held_out
    assert held["n_wrong"] == 40
    flat = complexity_report(
        model, X, y, **{**options, "X_test": np.concatenate(X_test),
                        "y_test": np.concatenate(y_test)}, lengths_test=lengths)
    assert flat.held_out == complexity_report(model, X, y, **options).held_out


def test_report_as_text_dict_and_pictures(chains):
    model, X, y, X_test, y_test = chains
    report = complexity_report(model, X, y, X_test=X_test, y_test=y_test, random_state=0)
    text = str(report)
    for words in ("Factors: positions", "Monte Carlo", "Margin bounds", "Clopper-Pearson",
                  "Consistent: yes", "transitions", "vacuous"):
        assert words in text
    assert "60 examples" in repr(report)
    plain = report.to_dict()
    assert json.loads(json.dumps(plain))["complexities"]["parts"]["norms"]["l2"] == pytest.approx(
        report.complexities["parts"].norms["l2"]._asdict())
    assert plain["margins"] == report.margins.tolist()
    assert str(complexity_report(model, X, y, random_state=0)).count("held-out") == 0
    again = complexity_report(model, X, y, X_test=X_test, y_test=y_test, random_state=0)
    assert str(again) == text

    display = report.plot()
    assert isinstance(display, MarginDisplay)
    assert display.counts_.sum() == 60
    assert (display.least_ <= display.counts_).all() and (display.counts_ <= display.most_).all()
    low, high = report.margins - report.margin_uncertainty, (
        report.margins + report.margin_uncertainty)
    edges = display.edges_
    inside = [((low >= a) & (high < b)).sum() for a, b in zip(edges[:-1], edges[1:], strict=True)]
    assert (display.least_[:-1] == inside[:-1]).all()
    display = display.plot(kind="cumulative")
    at = len(display.edges_) // 2
    assert display.counts_[at] == (report.margins <= display.edges_[at]).sum()
    assert (display.least_ <= display.counts_).all() and (display.counts_ <= display.most_).all()
    shown = ComplexityDisplay.from_report(report, norm="l2")
    assert repr(shown) == (
        "<ComplexityDisplay: features, (intercept), (start), (end), (transitions)>")
    widths = [bar.get_width() for bar in shown.bars_[1]]
    assert sum(widths) == pytest.approx(1)
    assert widths[0] == max(widths)
    import matplotlib.pyplot as plt
    plt.close("all")


@pytest.mark.parametrize("estimator", [MulticlassClassifier, OrdinalClassifier])
@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
def test_reports_of_labels(estimator, surrogate):
    X, y = load_iris(return_X_y=True)
    form = {"form": "classes"} if estimator is OrdinalClassifier else {}
    model = estimator(
        surrogate, alpha=0.01, fit_intercept=True, decode="map", random_state=0, **form).fit(X[::2], y[::2])
    report = complexity_report(
        model, X[::2], y[::2], X_test=X[1::2], y_test=y[1::2], random_state=0)
    held = report.held_out
    assert held["zero_one"] == pytest.approx(np.mean(model.predict(X[1::2]) != y[1::2]))
    assert held["clopper_pearson"][1] < 0.3
    assert report.summary["max_loss"] == model.cost_matrix_.max()
    theorem = report.complexities["parts"].norms["l21_labels"].theorem
    assert theorem >= report.complexities["parts"].norms["l21_labels"].monte_carlo
    constant = report.consistency.constant
    assert (report.excess_risk is None) == (surrogate != "max_min")
    if surrogate == "max_min":
        # a difference of the features of two labels: sqrt(2) times those of the example
        LB = np.sqrt(2 * ((X[::2] ** 2).sum(axis=1) + 1).max())
        expected = constant * (
            2 * model.duality_gap_ + 16 * LB**2 * (32 + np.log(20)) / (0.01 * 75))
        assert report.excess_risk["value"] == pytest.approx(expected)
        assert report.excess_risk["vacuous"]
    assert isnan(constant) == (surrogate != "max_min")
    expected = {"max_min": True, "log": estimator is MulticlassClassifier,
                "max_margin": estimator is OrdinalClassifier}
    assert report.consistency.consistent is expected[surrogate]
    assert str(report)


def test_no_reports_of_thresholds():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(NotImplementedError, match="use form='classes'"):
        complexity_report(OrdinalClassifier(random_state=0).fit(X, y), X, y)


@pytest.mark.parametrize("graph", ["tree", "none"])
@pytest.mark.parametrize("surrogate", ["max_margin", "log"])
def test_reports_of_label_sets(surrogate, graph):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 4))
    Y = (X[:, :3] + 0.3 * rng.normal(size=(120, 3)) > 0).astype(int)
    Y[:, 2] |= Y[:, 1]
    model = MultiLabelClassifier(
        surrogate, graph=graph, decode="map", random_state=0).fit(X[:60], Y[:60])
    report = complexity_report(
        model, X[:60], Y[:60], X_test=X[60:], y_test=sparse.csr_array(Y[60:]), random_state=0)
    wrong = model.predict(X[60:]) != Y[60:]
    assert report.held_out["loss"] == pytest.approx(wrong.mean())
    assert report.held_out["n_wrong"] == wrong.any(axis=1).sum()
    assert (report.families[-1]["family"] == "(pairs)") == (graph == "tree")
    answer = {("max_margin", "tree"): None, ("max_margin", "none"): True}
    assert report.consistency.consistent is answer.get((surrogate, graph), False)
    assert ("each label and each edge" in str(report)) == (graph == "tree")
    limited = MultiLabelClassifier(
        graph="none", constraints=CountFactor.at_most_one([0, 1]), random_state=0)
    Y[:, 1] = 0
    limited.fit(X[:60], Y[:60])
    with pytest.raises(NotImplementedError, match="Constraints"):
        complexity_report(limited, X[:60], Y[:60])


def test_pipelines_are_their_last_step():
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), MulticlassClassifier(random_state=0)).fit(X[::2], y[::2])
    options = dict(rho=1.0, random_state=0)
    report = complexity_report(
        model, X[::2], y[::2], X_test=X[1::2], y_test=y[1::2], **options)
    scaler, last = model[0], model[-1]
    plain = complexity_report(
        last, scaler.transform(X[::2]), y[::2], X_test=scaler.transform(X[1::2]), y_test=y[1::2],
        **options)
    assert str(report) == str(plain)


def test_free_intercept_leaves_margins_open():
    X, y = load_iris(return_X_y=True)
    model = MulticlassClassifier(fit_intercept="free", random_state=0).fit(X, y)
    report = complexity_report(model, X, y, rho=1.0, n_draws=2, random_state=0)
    assert np.isinf(report.margin_uncertainty).all()
    row = report.bounds[0]
    assert row["empirical_low"] == 0.0 and row["empirical_high"] == 1.0
    assert "at the optimum between 0 and 150" in str(report)
    for kind in ("histogram", "cumulative"):
        display = report.plot(kind=kind)
        assert (display.least_ == 0).all() and (display.most_ == 150).all()
    import matplotlib.pyplot as plt
    plt.close("all")


def test_features_by_families_of_a_vectorizer():
    words = [["the", "old", "man"], ["a", "man", "sings"]]
    tags = [["D", "A", "N"], ["D", "N", "V"]]
    vectorizer = SequenceVectorizer()
    X = vectorizer.fit_transform([[["w:" + word, "s:" + word[-1]] for word in s] for s in words])
    names = vectorizer.get_feature_names_out()
    model = SequenceTagger("log", random_state=0).fit(X, tags)
    report = complexity_report(
        model, X, tags, families=[name[0] for name in names], feature_names=names, random_state=0)
    assert [row["family"] for row in report.families][:2] == ["s", "w"]
    # an unlimited number of vectors: rows name families as well
    rows = complexity_report(
        model, X, tags, families=np.array([[name == "s:n", 1] for name in names]), random_state=0)
    assert len(rows.families) == 2 + 4
    assert "no; the most probable labelling" in str(report)


@pytest.mark.parametrize("change, message", [
    (dict(rho=[1.0, -1.0]), "rho"), (dict(rho=[]), "rho"), (dict(delta=1.0), "delta"),
    (dict(delta=0), "delta"), (dict(n_draws=-1), "n_draws"), (dict(loss="hinge"), "loss"),
    (dict(families=["a"]), "families has 1"), (dict(families="abcd"), "one family for each"),
    (dict(feature_names=["a"]), "feature_names has 1"), (dict(X_test=1), "together"),
    (dict(random_state="a"), "seed"),
])
def test_report_refuses(chains, change, message):
    model, X, y, *_ = chains
    with pytest.raises(ValueError, match=message):
        complexity_report(model, X, y, **change)


def test_report_refuses_models_and_data(chains):
    model, X, y, *_ = chains
    iris = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"y\[0\] at position 0 has a label that is not in"):
        complexity_report(model, X, [["x"] * len(labels) for labels in y])
    with pytest.raises(ValueError, match="lengths is for sequences"):
        complexity_report(MulticlassClassifier(random_state=0).fit(*iris), *iris, lengths=[150])
    with pytest.raises(ValueError, match="a label for each of the 150 examples"):
        complexity_report(MulticlassClassifier(random_state=0).fit(*iris), iris[0], iris[1][:5])
    kernel = MulticlassClassifier(kernel="rbf", random_state=0).fit(*iris)
    with pytest.raises(NotImplementedError, match="kernel='rbf' has no weights"):
        complexity_report(kernel, *iris)
    ranker = LabelRanker(random_state=0).fit([[0.0], [1.0]], ["b>a>c", "a>b>c"])
    with pytest.raises(NotImplementedError, match="LabelRanker is not supported by reports"):
        complexity_report(ranker, [[0.0]], ["b>a>c"])
    with pytest.raises(ValueError, match="not fitted"):
        complexity_report(SequenceTagger(), X, y)
    weights = [1.0, 0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="weights must be 4 finite numbers > 0"):
        factor_graph_complexity(model, X, weights=weights)
    zero = SequenceTagger("max_min", cost=[[0, 1, 0], [1, 0, 1], [1, 1, 0]], random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="0 for the truth and above 0"):
        complexity_report(zero, X, y)
    with pytest.raises(ValueError, match="kind must be one of"):
        MarginDisplay(np.ones(3)).plot(kind="pie")
    with pytest.raises(ValueError, match="no finite margins"):
        MarginDisplay(np.array([np.inf])).plot()
    report = complexity_report(model, X, y, n_draws=0)
    with pytest.raises(ValueError, match="norm must be"):
        ComplexityDisplay.from_report(report, norm="l3")


@pytest.mark.parametrize("scale", [1e-150, 1e100])
def test_extreme_scores(scale):
    X = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0]])]
    y = [["a", "b"], ["b"]]
    model = SequenceTagger("log", random_state=0).fit(X, y)
    model.coef_ = model.coef_ * scale
    report = complexity_report(model, X, y, random_state=0)
    values = [row["value"] for row in report.bounds]
    assert not np.isnan(values).any() and str(report)
