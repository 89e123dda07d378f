"""What a newcomer does wrong first: the error or the note names the place and the remedy."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fastm4n import (
    Graphs,
    GraphTagger,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
    cli,
)
from fastm4n.datasets import chunking_attributes, window_attributes

SKIES = """\
heat,wind,sunny,windy
1.5,0.2,1,0
-0.5,2.1,0,1
1.1,1.9,1,1
0.2,-1.0,1,0
-1.2,-0.4,0,0
0.4,1.0,1,1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    """The exit code, and what is on stdout and stderr."""
    try:
        code = cli.main(list(arguments))
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


def fitted(capsys, folder, text, *options, name="table.csv", code=0):
    """What fit says on stderr to a file of this text."""
    (folder / name).write_text(text)
    found, out, err = run(capsys, "fit", name, *options)
    assert found == code, err
    assert "Traceback" not in err
    return out + err


@pytest.mark.parametrize(("call", "said"), [
    (lambda: window_attributes("a dog"), "tokens must be a list of strings, .*"),
    (lambda: window_attributes([[("a", "D")], [("dog", "N")]]),
     r"tokens\[0\] must be a string or a tuple of strings.*one sentence at a time"),
    (lambda: window_attributes(["a", 3]), r"tokens\[1\] must be a string"),
    (lambda: window_attributes(["a", ()]), r"tokens\[1\] must be a string"),
    (lambda: chunking_attributes("ab", "DN"), "words must be a list of strings"),
    (lambda: chunking_attributes(["a"], [["D"]]), r"tags\[0\] must be a string, got \['D'\]"),
])
def test_attributes_are_made_of_one_sentence(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_a_missing_label_is_no_class(capsys, folder):
    said = fitted(capsys, folder, "a,target\n1,x\n2,NaN\n3,y\n4,nan\n", code=1)
    assert "is 'NaN' in example 2 and in 1 more: leave these examples out, or give a" in said
    said = fitted(capsys, folder, "a,target\n1,1\n2,nan\n3,2\n", code=1)
    assert "in example 2" in said
    said = fitted(capsys, folder, "a,target\n1,x\n2,NaN\n3,y\n", code=1)
    assert "the target target is 'NaN' in example 2: leave it out, or give a label" in said


def test_one_word_among_numbers_is_noted(capsys, folder):
    said = fitted(capsys, folder, "a,target\n1,1\n2,oops\n3,2\n4,1\n5,2\n")
    assert "is numbers except for oops, first in example 2" in said
    assert "is numbers except for" not in fitted(capsys, folder, "a,target\n1,x\n2,y\n3,x\n")


def test_columns_of_zeros_and_ones_may_be_labels(capsys, folder):
    said = fitted(capsys, folder, SKIES)
    assert "the last 2 columns are zeros and ones" in said
    assert "pass --labels sunny,windy" in said
    for options in (["--labels", "sunny,windy"], ["--target", "windy"]):
        assert "are zeros and ones" not in fitted(capsys, folder, SKIES, *options)
    # one alone is two classes
    one = "\n".join(line.replace(",0,", ",7,").replace(",1,", ",8,") for line in SKIES.split("\n"))
    assert "are zeros and ones" not in fitted(capsys, folder, one)


@pytest.mark.parametrize("options", [[], ["--surrogate", "log"]])
def test_columns_whose_variance_overflows_are_named(capsys, folder, options):
    rows = "".join(f"{i},{(-1) ** i * 1e300},{'xy'[i % 2]}\n" for i in range(8))
    said = fitted(capsys, folder, f"a,b,target\n{rows}", *options, code=1)
    assert "column b has values up to 1e+300, whose variance overflows: divide" in said
    for more in ([], ["--cv", "2"]):
        code, _, err = run(capsys, "path", "table.csv", "--no-plot", *more)
        assert code == 1
        assert "column b has values up to 1e+300" in err


def test_models_are_no_data(capsys, folder):
    fitted(capsys, folder, SKIES, "--model", "skies.fm4n")
    for name, start in (("skies.fm4n", None), ("old.crfsuite", b"lCRF\0\0\0\0"), ("a.csv", b"lCRF")):
        if start is not None:
            (folder / name).write_bytes(start)
        code, _, err = run(capsys, "fit", name)
        assert (code, "is a model, and DATA is a file of data" in err) == (2, True), err


def test_formats_are_listed_where_the_name_tells_none(capsys, folder):
    said = fitted(capsys, folder, "1 qid:1 1:1\n", name="train.dat", code=2)
    assert "pass --format csv, svmlight, " in said
    assert "svmhmm" in said


def test_unknown_options_name_the_command(capsys):
    code, _, err = run(capsys, "fit", "iris", "--crf")
    assert code == 2
    assert err == "fastm4n fit: error: unrecognized arguments: --crf (see 'fastm4n fit --help')\n"


def test_taggers_say_what_auto_is(capsys, folder):
    said = fitted(capsys, folder, "a D\ndog N\n\nthe D\ncat N\n", name="own.txt")
    assert "alpha auto: 0.5\n" in said


def test_columns_of_tokens_that_lack(capsys, folder):
    fitted(capsys, folder, "a x D\ndog y N\n", "--model", "own.fm4n", name="own.txt")
    (folder / "new.txt").write_text("a\ndog\n")
    code, _, err = run(capsys, "predict", "own.fm4n", "new.txt")
    assert code == 1
    assert "new.txt has 1 column, but the model was fitted on 3, of which column 3 was the" in err
    assert "give the same columns, without the target if there is none" in err


def test_words_as_labels_of_tokens_are_noted(capsys, folder):
    text = "".join(f"w{i} t\n" for i in range(301))
    said = fitted(capsys, folder, text, "--target", "1", "--max-iter", "1", name="own.txt")
    assert "the target has 301 different labels" in said


def test_labels_that_are_no_levels_name_the_levels():
    with pytest.raises(ValueError, match=r"y\[2\] is 'c', .*levels: 'a', 'b'\. Give all levels"):
        OrdinalClassifier(levels=["a", "b"]).fit(np.eye(3), ["a", "b", "c"])


X = np.arange(12.0).reshape(6, 2)
Y = ["a", "b", "c", "a", "b", "c"]


def spoilt(place, value):
    wrong = X.copy()
    wrong[place] = value
    return wrong


@pytest.mark.parametrize("cls", [MulticlassClassifier, OrdinalClassifier])
@pytest.mark.parametrize(("inputs", "labels", "said"), [
    (X, Y[:-1], r"inconsistent numbers of samples.*X has 6, and y has 5\. Give a label for each"),
    (spoilt((3, 1), np.nan), Y, r"Input X contains NaN\. X\[3, 1\] is nan\..* leave the row"),
    (spoilt((2, 0), np.inf), Y, r"Input X contains infinity.* X\[2, 0\] is inf"),
    (sparse.csr_array(spoilt((3, 1), np.nan)), Y, r"X\[3, 1\] is nan"),
    ([[1.0, 2.0]] * 5 + [[1.0, "x"]], Y, r"X\[5, 1\] is 'x'\. Features are numbers: .* encode it"),
    (X, [None, *Y[1:]], r"y\[0\] is None: each example needs a label"),
    (X, [*Y[:4], float("nan"), "a"], r"Input y contains NaN\. y\[4\] is nan: each example needs"),
    (X, np.array([*Y[:5], np.nan], dtype=object), r"Input y contains NaN\. y\[5\] is nan"),
    (X, [0.0, 1.0, np.nan, 1.0, 0.0, 1.0], r"Input y contains NaN\. y\[2\] is nan"),
    (X, [0.0, 1.0, 0.25, 1.0, 0.0, 1.0], r"Unknown label type: continuous\. y\[2\] is 0.25.*bin"),
])
def test_vectors_that_are_wrong_name_the_place(cls, inputs, labels, said):
    with pytest.raises(ValueError, match=f"(?s){said}"):
        cls().fit(inputs, labels)


def test_columns_of_frames_are_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(spoilt((4, 1), np.nan), columns=["age", "size"])
    model = MulticlassClassifier().fit(pandas.DataFrame(X, columns=["age", "size"]), Y)
    for call in (lambda: model.predict(frame), lambda: MulticlassClassifier().fit(frame, Y)):
        with pytest.raises(ValueError, match=r"X\[4, 1\], column 'size' is nan"):
            call()


@pytest.mark.parametrize(("model", "inputs", "labels"), [
    (MulticlassClassifier(cost="absolute"), X, Y),
    (SequenceTagger(cost="absolute"), [X[:3], X[3:]], [Y[:3], Y[3:]]),
    (GraphTagger("max_min", cost="absolute"), [(X, [[0, 1], [1, 2]])], [Y]),
])
def test_distances_of_words_are_noted(model, inputs, labels):
    with pytest.warns(UserWarning, match=r"cost='absolute' takes labels.* a < b < c: pass a matrix"):
        model.fit(inputs, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(cost="zero_one").fit(inputs, labels)
        numbers = [[" abc".index(label) for label in row] for row in labels]
        numbers = [row[0] for row in numbers] if isinstance(labels[0], str) else numbers
        model.set_params(cost="absolute").fit(inputs, numbers)


@pytest.mark.parametrize("cls", [MulticlassClassifier, OrdinalClassifier])
@pytest.mark.parametrize("labels", [Y, [0, 1, 2, 0, 1, 2]])
def test_x_and_y_exchanged(cls, labels):
    with pytest.raises(ValueError, match=r"X has one dimension and y has two: call fit\(X, y\)"):
        cls().fit(labels, X)


def test_pixels_up_to_255_are_told_to_be_divided():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (6, 5, 3)).astype(np.uint8) for _ in range(4)]
    labels = [(image[..., 0] > 128).ravel() for image in images]
    tagger = GraphTagger("max_margin", max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"values of about 1\d\d: .* images / 255"):
        tagger.fit(Graphs.from_grid(images), labels)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tagger.fit(Graphs.from_grid([image / 255 for image in images]), labels)
    assert not any("images / 255" in str(warning.message) for warning in told)


def test_images_that_are_files_or_nested():
    image = np.zeros((2, 3))
    with pytest.raises(TypeError, match=r"images\[1\] must be an array, not 'a.png'. Read files"):
        Graphs.from_grid([image, "a.png"])
    with pytest.raises(TypeError, match=r"images\[0\] must be an array, not a list of images"):
        Graphs.from_grid([[image, np.zeros((4, 5))]])
    assert Graphs.from_grid([image.tolist()]).n_nodes == 6


def test_a_model_of_attributes_says_what_its_files_hold(capsys, folder):
    fitted(capsys, folder, "D\tw=a\nN\tw=dog\n", "--model", "own.fm4n", name="own.crfsuite")
    (folder / "own.txt").write_text("a D\ndog N\n")
    code, _, err = run(capsys, "predict", "own.fm4n", "own.txt")
    assert code == 2
    assert "own.txt is conll, but the model was fitted on crfsuite: give crfsuite, with a label" in err
    assert "attributes of the model on each line, separated by tabs" in err
