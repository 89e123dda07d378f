"""Model files: what is saved comes back to the bit; what is damaged or hostile is refused."""

import itertools
import json
import os
import re

import numpy as np
import pytest
from comparisons import same, same_state
from covering import covering
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from fastm4n import (
    BlockFrankWolfe,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    OrdinalClassifier,
    RegularizationPath,
    Sequences,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
    cli,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.base.array_files import ModelFileError, read_arrays, write_arrays
from fastm4n.cli._scores import scores
from fastm4n.models import _files as model_files
from fastm4n.models import _state
from fastm4n.penalties import L2
from fastm4n.plotting._path import _path_data
from fastm4n.tasks.chain_weights import packed_weights
from fastm4n.tasks.labels import LabelTask


def there_and_back(estimator, folder):
    path = folder / "model.fm4n"
    save_model(estimator, path)
    return load_model(path)


# --------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24, dtype=np.int32).reshape(4, 6)[::2, 1::2],
        np.array(2.5, dtype=np.float32),
        np.zeros((0, 3)),
        np.array([True, False]),
        np.array([-1], dtype=np.int8),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([1.0], dtype=">f8"),
        np.array(["a", "öß", "😀x", ""]),
        np.array([b"ab", b"c"]),
        np.array([], dtype="U3"),
        np.array(["a", 1, 1.5, True, "\0"], dtype=object),
        np.array([["a", "b"]], dtype=object),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back(array, tmp_path):
    write_arrays(tmp_path / "a", "arrays", {"n": 1}, {"x": array, "y": np.ones(2)})
    header, arrays = read_arrays(tmp_path / "a", "arrays")
    assert header == {"n": 1} and list(arrays) == ["x", "y"]
    back = arrays["x"]
    assert back.dtype == array.dtype.newbyteorder("=") and back.shape == array.shape
    assert_array_equal(back, array)
    assert back.flags.writeable
    if array.dtype == object:
        assert [type(a) for a in back.ravel()] == [type(a) for a in array.ravel()]
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        assert back.flags.f_contiguous


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (2, 0)])
def test_csr_comes_back_as_it_is(container, shape, tmp_path):
    matrix = container(np.arange(np.prod(shape)).reshape(shape) % 3 * 0.5)
    if matrix.nnz:  # unsorted, as products depend on the order
        matrix.indices[:2], matrix.data[:2] = matrix.indices[1::-1].copy(), [7, 8]
    write_arrays(tmp_path / "a", "arrays", {}, {"x": matrix})
    same(matrix, read_arrays(tmp_path / "a", "arrays")[1]["x"])


def test_headers_come_back(tmp_path):
    header = {"a": [1, 2.5, None, True, "ü"], "b": {"c": np.float64(0.1), "d": np.int64(3)}}
    write_arrays(tmp_path / "a", "arrays", header, {})
    assert read_arrays(tmp_path / "a", "arrays")[0] == {
        "a": [1, 2.5, None, True, "ü"], "b": {"c": 0.1, "d": 3}
    }


@pytest.mark.parametrize(
    "header, arrays, said",
    [
        ({}, {"x": np.array([1 + 2j])}, "x is of dtype complex128"),
        ({}, {"x": np.array([1], dtype=np.float16)}, "x is of dtype float16"),
        ({}, {"x": np.array(["2020-01-01"], dtype="M8[D]")}, "x is of dtype datetime64"),
        ({}, {"x": np.array([None], dtype=object)}, "None of type NoneType"),
        ({}, {"x": np.array([{}], dtype=object)}, "of type dict"),
        ({}, {"x": np.array([np.inf], dtype=object)}, "x"),
        ({}, {"x": np.array([[1, 2], [np.nan, 4]])}, r"x\[1, 0\] is nan"),
        ({}, {"x": sparse.csr_matrix([[np.inf]])}, r"x\.data\[0\] is inf"),
        ({}, {"x": sparse.csc_matrix([[1.0]])}, "format 'csc'"),
        ({}, {"x": np.ones((1,) * 9)}, "9 dimensions"),
        ({}, {3: np.ones(1)}, "names of arrays"),
        ({"a": np.nan}, {}, "header cannot be written"),
        ({"a": object()}, {}, "of type object"),
        ({"a": "x" * 2**24}, {}, "Move long"),
    ],
)
def test_what_cannot_be_written_is_refused_first(header, arrays, said, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=said):
        write_arrays(path, "arrays", header, arrays)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_finite_is_asked_for_or_not(tmp_path):
    x = np.array([np.nan, -np.inf])
    write_arrays(tmp_path / "a", "arrays", {}, {"x": x}, finite=False)
    same(x, read_arrays(tmp_path / "a", "arrays", finite=False)[1]["x"])
    with pytest.raises(ModelFileError, match=r"a is damaged: x makes no sense \(x\[0\] is nan"):
        read_arrays(tmp_path / "a", "arrays")
NAMES = np.array(["setosa", "versicolor", "virginica"])
QUICK = dict(random_state=0, tol=1e-2, max_iter=20)
X, Y = load_iris(return_X_y=True)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
@pytest.mark.parametrize(
    "parameters, X",
    [
        (dict(), X),
        (dict(), X.astype(np.float32)),
        (dict(), sparse.csr_matrix(X)),
        (dict(fit_intercept=False, cost="squared"), sparse.csr_array(X)),
        (dict(cost=[[0, 1, 2], [1, 0, 3], [2, 1, 0]], class_weight={"virginica": 2.0}), X),
        (dict(cost=np.ones((3, 3)) - np.eye(3), class_weight="balanced"), X),
        (dict(kernel="rbf"), X),
        (dict(kernel="rbf", gamma=np.float32(0.25)), sparse.csr_matrix(X)),
        (dict(kernel="poly", kernel_params={"degree": 2, "coef0": 2.0}), X.astype(np.float32)),
        (dict(kernel="laplacian", gamma=None), np.asfortranarray(X)),
        (dict(kernel="precomputed"), rbf_kernel(X)),
        (dict(solver=BlockFrankWolfe(sampling="uniform", cache_F=np.float32(0.5))), X),
        (dict(penalty=L2((-0.5, np.inf))), X),
        (dict(penalty=L2((None, np.array([0.1, 0.2, np.inf, 0.3])))), X),
        (dict(fit_intercept="free", warm_start=True, n_jobs=2, verbose=0), X),
    ],
)
def test_classifiers_come_back(surrogate, parameters, X, tmp_path):
    model = MulticlassClassifier(surrogate, **parameters, **QUICK).fit(X, NAMES[Y])
    loaded = there_and_back(model, tmp_path)
    assert type(loaded) is MulticlassClassifier and repr(loaded) == repr(model)
    same_state(model, loaded)
    same(model.decision_function(X), loaded.decision_function(X))
    same(model.predict(X[:7]), loaded.predict(X[:7]))
    if surrogate != "max_margin":
        same(model.predict(X, decode="min_risk"), loaded.predict(X, decode="min_risk"))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 7]), np.array([2.0, -1.0, 4.0]), np.array(["ä", "b", "c" * 30]),
        np.array([b"x", b"y", b"z"]), np.array([True, False, True]),
        np.array(["a", "b", "c"], dtype=object), np.array([1, 2, 3], dtype=np.uint8),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_of_every_type_come_back(labels, tmp_path):
    if labels.dtype.kind == "S":
        y = Sequences.from_lengths(labels[Y], [50] * 3)
        model = SequenceTagger(**QUICK).fit(Sequences.from_lengths(X, [50] * 3), y)
        loaded = there_and_back(model, tmp_path)
    else:
        model = MulticlassClassifier(**QUICK).fit(X, labels[Y])
        loaded = there_and_back(model, tmp_path)
        same(model.predict(X), loaded.predict(X))
    same(model.classes_, loaded.classes_)


@pytest.mark.parametrize("levels", [["low", "mid", "high"], ("low", "mid", "high"), None])
def test_ordinal_classifiers_come_back(levels, tmp_path):
    features, target = load_diabetes(return_X_y=True)
    y = np.array(["low", "mid", "high"])[np.searchsorted([100, 200], target)]
    model = OrdinalClassifier(alpha=1e-4, levels=levels, **QUICK).fit(features, y)
    loaded = there_and_back(model, tmp_path)
    same_state(model, loaded)
    assert loaded.levels == levels and type(loaded.levels) is type(levels)
    same(model.decision_function(features), loaded.decision_function(features))
    loaded.fit(features, y)  # parameters serve a further fit
    same(model.coef_, loaded.coef_)


def sequences(kind, rng):
    values = rng.normal(size=(60, 5)) * (rng.random((60, 5)) < 0.6)
    values = sparse.csr_matrix(values) if kind == "sparse" else values
    return Sequences.from_lengths(values, [1, 9, 20, 30])


OF_TAGGERS = (
    dict(), dict(transitions=Transitions(features="all")), dict(transitions=Transitions(features=[3, 1])),
    dict(transitions=Transitions(features=np.array([True, False, True, False, False])), states="observed"),
    dict(transitions=False),
    dict(allowed_transitions=np.triu(np.ones((3, 3), dtype=bool))),
    dict(warm_start=True, solver=BlockFrankWolfe(oracle_iter=5)),
)


@pytest.mark.parametrize(("surrogate", "number", "kind"), covering(itertools.product(
    ["max_min", "max_margin", "log"], range(len(OF_TAGGERS)), ["dense", "sparse"])))
def test_taggers_come_back(surrogate, number, kind, tmp_path):
    parameters = OF_TAGGERS[number]
    rng = np.random.default_rng(0)
    X = sequences(kind, rng)
    y = Sequences.from_lengths(np.array(["O", "B-x", "I-x"])[rng.integers(3, size=60)], X.lengths)
    model = SequenceTagger(surrogate, **parameters, **QUICK).fit(X, y)
    loaded = there_and_back(model, tmp_path)
    same_state(model, loaded)
    assert packed_weights(loaded)[0] is loaded._packed  # no copy for each prediction
    same(model.predict(X).values, loaded.predict(X).values)
    same(model.decision_function(X).values, loaded.decision_function(X).values)
    for one, other in zip(model.predict_kbest(X[:2], 3), loaded.predict_kbest(X[:2], 3)):
        for a, b in zip(one, other):
            same(a, b)
    if surrogate == "log":
        same(model.predict_marginals(X).values, loaded.predict_marginals(X).values)


def test_taggers_of_mixed_labels_come_back(tmp_path):
    X = sequences("dense", np.random.default_rng(0))
    y = Sequences.from_lengths(np.array(["a", 1, 2.5, True], dtype=object)[
        np.random.default_rng(1).integers(1, 4, size=60) * (X.values[:, 0] != 0)], X.lengths)
    model = SequenceTagger(**QUICK).fit(X, y)
    loaded = there_and_back(model, tmp_path)
    assert [type(label) for label in loaded.classes_] == [type(c) for c in model.classes_]
    same_state(model, loaded)
    pairs = [[(1, 2), (3, 4)], [(1, 2)]]
    with pytest.raises(ValueError, match=r"classes_ is an array of objects and has \(1, 2\)"):
        save_model(SequenceTagger().fit([np.eye(2), np.ones((1, 2))], pairs), tmp_path / "a")


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize("form", ["ranks", "ordering", "string"])
def test_rankers_come_back(surrogate, kernel, form, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    orders = np.array(["tea", "milk", "water"])[rng.permuted(np.tile(range(3), (30, 1)), axis=1)]
    y = {
        "ranks": rng.permuted(np.tile([1, 2, 3], (30, 1)), axis=1),
        "ordering": orders,
        "string": [">".join(order) for order in orders],
    }[form]
    X = rbf_kernel(X) if kernel == "precomputed" else X
    model = LabelRanker(surrogate, kernel=kernel, **QUICK).fit(X, y)
    loaded = there_and_back(model, tmp_path)
    same_state(model, loaded)
    same(model.decision_function(X), loaded.decision_function(X))
    same(model.predict(X), loaded.predict(X))


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_matchers_come_back(surrogate, kernel, tmp_path):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(m, m, 2)) for m in (2, 3, 3, 4)]
    y = [rng.permutation(len(x)) for x in X]
    model = Matcher(surrogate, kernel=kernel, **QUICK).fit(X, y)
    loaded = there_and_back(model, tmp_path)
    same_state(model, loaded)
    for a, b in zip(model.decision_function(X), loaded.decision_function(X)):
        same(a, b)
    assert model.score(X, y) == loaded.score(X, y)


def test_pipelines_come_back(tmp_path):
    model = make_pipeline(StandardScaler(), MulticlassClassifier(kernel="rbf", **QUICK)).fit(X, Y)
    loaded = there_and_back(model, tmp_path)
    assert type(loaded) is Pipeline and list(loaded.named_steps) == list(model.named_steps)
    same(model.decision_function(X), loaded.decision_function(X))
    for name in ("mean_", "scale_", "var_"):
        same(getattr(model[0], name), getattr(loaded[0], name))
    rows = sparse.csr_matrix(X)
    model = make_pipeline(StandardScaler(with_mean=False), OrdinalClassifier(**QUICK)).fit(rows, Y)
    same(model.predict(rows), there_and_back(model, tmp_path).predict(rows))


def test_vectorizers_come_back_with_their_tagger(tmp_path):
    words = [["the", "old", "man"], ["a", "man", "sings"]]
    tags = [["D", "A", "N"], ["D", "N", "V"]]
    X = [[{"word": word, "length": len(word)} for word in sentence] for sentence in words]
    model = make_pipeline(
        SequenceVectorizer(dtype=np.float32, separator="="), SequenceTagger("log", **QUICK)
    ).fit(X, tags)
    loaded = there_and_back(model, tmp_path)
    assert loaded[0].dtype is np.float32
    same(model[0].__getstate__(), loaded[0].__getstate__())
    same(model.predict(X).values, loaded.predict(X).values)
    same(model[1].predict_marginals(model[0].transform(X)).values,
         loaded[1].predict_marginals(loaded[0].transform(X)).values)


def test_names_of_features_come_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    loaded = there_and_back(MulticlassClassifier(**QUICK).fit(frame, Y), tmp_path)
    assert loaded.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "c", "d"]])


def test_metadata_come_back(tmp_path):
    save_model(MulticlassClassifier(**QUICK).fit(X, Y), tmp_path / "a", metadata={"b": [1, None]})
    assert model_files.read_model(tmp_path / "a")[1] == {"b": [1, None]}


def test_callbacks_and_warm_starts_are_not_kept(tmp_path):
    model = MulticlassClassifier(callback=lambda row: False, warm_start=True, **QUICK).fit(X, Y)
    loaded = there_and_back(model, tmp_path)
    assert loaded.callback is None and model.callback is not None
    assert not hasattr(loaded, "_warm_state") and hasattr(model, "_warm_state")


class PainterTask(LabelTask):
    def problem(self, *args, **options):
        problem = super().problem(*args, **options)
        colours = np.array(["red", "green", "blue"])
        problem.common.update(colours_=colours, mix_=np.ones((3, 2)), tone_="dark")
        if self.class_weight is not None:
            problem.common.update(shade_=np.zeros(2))
        return problem


class Painter(MulticlassClassifier):
    """An estimator that is not the library's, with fitted attributes of its own."""

    _task = "colours"
    _fitted_arrays = {
        "colours_": (("k",), "U"), **MulticlassClassifier._fitted_arrays, "mix_": (("k", "m"), "f"),
    }
    _fitted_values = ("tone_",)
    _fitted_marker = "mix_"

    _task_class = PainterTask

    def _arrays_of_fit(self):
        shades = {} if self.class_weight is None else {"shade_": (("m",), "f")}
        return {**super()._arrays_of_fit(), **shades}

    def _check_fitted(self, attributes):
        if attributes["tone_"] not in ("dark", "light"):
            raise ValueError("there is no such tone")


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_estimators_declare_what_files_commands_and_displays_read(
    class_weight, tmp_path, monkeypatch, capsys
):
    painter = Painter(alpha=0.01, class_weight=class_weight, random_state=0).fit(X, Y)
    path = tmp_path / "model.fm4n"
    with pytest.raises(TypeError, match="Painter cannot be saved"):
        save_model(painter, path)
    monkeypatch.setitem(_state.PREDICTORS, "Painter", Painter)
    loaded = there_and_back(painter, tmp_path)
    assert type(loaded) is Painter
    same_state(painter, loaded)
    assert cli.main(["info", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["task"], document["colours"]) == ("colours", ["red", "green", "blue"])
    assert cli.main(["info", str(path)]) == 0
    assert re.search(r"^colours +red, green, blue$", capsys.readouterr().out, re.MULTILINE)
    assert scores(loaded, X, Y, loaded.predict(X)) == {"score": painter.score(X, Y)}
    found = regularization_path(painter, X, Y, eps=0.5)
    found.save(path)
    data = _path_data(RegularizationPath.load(path), None, None, 12, None)
    assert {name.split(":")[0] for name in data["coef_names"]} == {"red", "green", "blue"}
    painter.tone_ = "loud"
    with pytest.raises(ValueError, match="no such tone"):
        save_model(painter, path)
    painter.tone_, painter.mix_ = "dark", np.ones((2, 2))
    with pytest.raises(ValueError, match="mix_ has shape"):
        save_model(painter, path)


@pytest.mark.parametrize(
    "make, kind, said",
    [
        (lambda: MulticlassClassifier(), NotFittedError, "not fitted"),
        (lambda: StandardScaler().fit(X), TypeError, "StandardScaler cannot be saved"),
        (lambda: make_pipeline(MinMaxScaler(), MulticlassClassifier()).fit(X, Y), TypeError,
         "MinMaxScaler cannot be saved before the last step"),
        (lambda: type("Mine", (MulticlassClassifier,), {})().fit(X, Y), TypeError,
         "Mine cannot be saved. Classes that can: GraphTagger, LabelRanker"),
        (lambda: MulticlassClassifier(kernel=lambda a, b: a @ b).fit(X, Y), TypeError,
         "kernel=<.* cannot be saved: it is a callable"),
        (lambda: MulticlassClassifier(random_state=np.random.RandomState(0)).fit(X, Y), TypeError,
         "random_state=.* set it to an integer or None first"),
        (lambda: MulticlassClassifier().fit(X, Y).set_params(kernel="rbf"), ValueError,
         "dual_coef_ is missing in a MulticlassClassifier of kernel 'rbf'"),
        (lambda: MulticlassClassifier().fit(X, Y).set_params(alpha=-1), ValueError, "alpha"),
    ],
)
def test_what_cannot_be_saved_is_refused(make, kind, said, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(kind, match=said):
        save_model(make(), path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


# ---------------------------------------------------------------------- what is refused


def test_fuzzed_bytes_are_always_refused(tmp_path):
    rng = np.random.default_rng(0)
    words = [[["a"], ["b"]], [["b"], ["c"]]]
    model = make_pipeline(SequenceVectorizer(), SequenceTagger(**QUICK))
    save_model(model.fit(words, [["x", "y"], ["y", "x"]]), tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    path = tmp_path / "damaged"
    for trial in range(450):
        damaged = bytearray(content)
        where = int(rng.integers(len(content)))
        if trial % 3 == 0:
            damaged = damaged[:where]
        elif trial % 3 == 1:
            damaged[where] ^= 1 << int(rng.integers(8))
        else:
            n = int(rng.integers(1, 20))
            damaged[where : where + n] = rng.bytes(int(rng.integers(20)))
            if damaged == content:
                continue
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError, match="damaged "):
            load_model(path)
