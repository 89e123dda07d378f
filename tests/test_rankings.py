"""Rankings: all forms give the same places, come back as they were, and errors name the row."""

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fastm4n.data._rankings
from fastm4n.data._rankings import as_places, places_to_orderings, places_to_strings
from fastm4n.data._sequences import Sequences

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

NAMES = ["d", "ä b", "c", "a-1", "ee"]


def orderings(n_items=4):
    """All orderings of the names, and the places of the sorted items, item by item."""
    y = [list(ordering) for ordering in permutations(NAMES[:n_items])]
    return y, [[ordering.index(item) for item in sorted(NAMES[:n_items])] for ordering in y]


def test_exports():
    assert fastm4n.data._rankings.as_places is as_places


# --------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("n_items", [1, 2, 3, 5])
def test_orderings(n_items):
    y, expected = orderings(n_items)
    forms = {
        "lists": y,
        "tuples": list(map(tuple, y)),
        "arrays": list(map(np.array, y)),
        "array": np.array(y),
        "array of objects": np.array(y, dtype=object),
        "series of lists": pd.Series(y, index=range(5, 5 + len(y))),
        "frame": pd.DataFrame(y),
        "sequences": Sequences.from_list(y),
    }
    for name, form in forms.items():
        for kind in ("auto", "ordering"):
            places, items = as_places(form, kind)
            assert places.dtype == np.intp and places.flags.c_contiguous, name
            assert_array_equal(places, expected, name)
            assert items.dtype.kind == "U" and items.tolist() == sorted(NAMES[:n_items]), name


@pytest.mark.parametrize("n_items", [1, 2, 3, 5])
@pytest.mark.parametrize("separator", [">", " > ", ">\t"])
def test_strings(n_items, separator):
    y, expected = orderings(n_items)
    y = [separator.join(ordering) for ordering in y]
    y, expected = y + y[::-1], expected + expected[::-1]
    forms = [y, tuple(y), np.array(y), np.array(y, dtype=object), pd.Series(y), pl.Series(y),
             pd.Series(y, dtype="string")]
    for form in forms:
        for kind in ("auto", "string"):
            places, items = as_places(form, kind)
            assert places.dtype == np.intp and places.flags.c_contiguous
            assert_array_equal(places, expected)
            assert items.tolist() == sorted(NAMES[:n_items])


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("n_items", [1, 2, 5])
def test_ranks(base, n_items):
    expected = np.array(list(permutations(range(n_items))))
    y = expected + base
    forms = [y.astype(dtype) for dtype in ("i1", "u1", "i8", "u8", "f4", "f8", object)]
    forms += [y.tolist(), y.astype(float).tolist(), list(y), pd.DataFrame(y), np.asfortranarray(y),
              pd.Series(y.tolist())]
    for form in forms:
        for kind in ("auto", "ranks"):
            places, items = as_places(form, kind)
            assert places.dtype == np.intp and places.flags.c_contiguous
            assert_array_equal(places, expected)
            assert items.tolist() == list(range(n_items))


def test_ranks_are_not_changed_in_place():
    for base in (0, 1):
        y = np.array([[0, 1], [1, 0]]) + base
        as_places(y)[0][:] = 7
        assert_array_equal(y, np.array([[0, 1], [1, 0]]) + base)


def test_integers_are_ranks_unless_said_otherwise():
    y = np.array([[2, 3, 1], [1, 2, 3]])
    assert_array_equal(as_places(y)[0], [[1, 2, 0], [0, 1, 2]])
    places, items = as_places(y, form="ordering")
    assert_array_equal(places, [[2, 0, 1], [0, 1, 2]])
    assert items.dtype.kind == "i" and items.tolist() == [1, 2, 3]
    places, items = as_places([[30, -2, 7]], form="ordering")
    assert_array_equal(places, [[1, 2, 0]])
    assert items.tolist() == [-2, 7, 30]


def test_many_items():
    # more than the ranks' dtype could count from another base
    y = np.random.default_rng(0).permuted(np.tile(np.arange(256), (3, 1)), axis=1)
    assert_array_equal(as_places(y.astype(np.uint8))[0], y)
    y = np.random.default_rng(0).permuted(np.tile(np.arange(1, 128), (3, 1)), axis=1)
    assert_array_equal(as_places(y.astype(np.int8))[0], y - 1)
    overflown = np.arange(1, 129).astype(np.int8)[np.newaxis]
    with pytest.raises(ValueError, match=r"y\[0\] has the rank -128 in column 127"):
        as_places(overflown)


def test_items_give_the_order_of_the_columns():
    y = ["b>a>c", "c>b>a"]
    for items in (["c", "a", "b"], ("c", "a", "b"), np.array(["c", "a", "b"]),
                  pd.Index(["c", "a", "b"])):
        places, found = as_places(y, items=items)
        assert_array_equal(places, [[2, 1, 0], [0, 2, 1]])
        assert isinstance(found, np.ndarray) and found.tolist() == ["c", "a", "b"]
    places, found = as_places([[2, 1, 3]], items=["c", "a", "b"])
    assert_array_equal(places, [[1, 0, 2]])
    assert found.tolist() == ["c", "a", "b"]
    assert_array_equal(as_places([[5, 9]], "ordering", items=[9, 5])[0], [[1, 0]])


# -------------------------------------------------------------------------------- the way back


@pytest.mark.parametrize("n_items", [1, 2, 5])
def test_there_and_back(n_items):
    y, _ = orderings(n_items)
    places, items = as_places(y)
    assert places_to_orderings(places, items).tolist() == y
    strings = places_to_strings(places, items)
    assert strings.dtype.kind == "U" and strings.tolist() == [">".join(row) for row in y]
    assert_array_equal(as_places(strings)[0], places)
    order = items[::-1]
    assert places_to_orderings(as_places(y, items=order)[0], order).tolist() == y
    assert places_to_orderings(places.tolist(), list(items)).tolist() == y


def test_there_and_back_of_integers():
    y = np.array([[30, -2, 7], [7, 30, -2]])
    places, items = as_places(y, "ordering")
    assert_array_equal(places_to_orderings(places, items), y)
    strings = places_to_strings(places, items)
    assert strings.tolist() == ["30>-2>7", "7>30>-2"]
    assert_array_equal(as_places(strings, items=["-2", "7", "30"])[0], places)


def test_no_rankings_are_written_as_none():
    empty = np.empty((0, 2), dtype=int)
    assert places_to_orderings(empty, ["a", "b"]).shape == (0, 2)
    strings = places_to_strings(empty, ["a", "b"])
    assert strings.shape == (0,) and strings.dtype.kind == "U"


@pytest.mark.parametrize("write", [places_to_orderings, places_to_strings])
@pytest.mark.parametrize(
    ("places", "items", "message"),
    [
        ([[0, 1], [1, 1]], "ab", r"places\[1\] has the place 1 in columns 0 and 1"),
        ([[0, 2]], "ab", r"places\[0\] has no place 1: it must have each of 0 \.\.\. 1 once"),
        ([[1, 2]], "ab", r"places\[0\] has no place 0"),
        ([[0, -1]], "ab", r"places\[0\] has the place -1 in column 1"),
        ([[0, 1, 2]], "ab", r"places must be integers of shape \(n, 2\).*\(1, 3\)"),
        ([0, 1], "ab", r"places must be integers of shape \(n, 2\).*\(2,\)"),
        ([[0.0, 1.0]], "ab", r"places must be integers of shape \(n, 2\).*float64"),
        ([[0, 1]], "aa", "items has 'a' twice"),
        ([[0, 1]], ["a", 1], "items has 1. Names must be all strings or all integers"),
        ([[0, 1]], [1, True], "items has True"),
        ([[0, 1]], [1.5, 2.5], "items has 1.5"),
        ([[0, 1]], "", "items has no items"),
    ],
)
def test_what_cannot_be_written(write, places, items, message):
    with pytest.raises(ValueError, match=message):
        write(places, list(items))


@pytest.mark.parametrize("name", ["a>b", "a=b", "", " a", "a "])
def test_names_that_cannot_be_read_again(name):
    with pytest.raises(ValueError, match=r"items\[1\] is .*: names must not contain"):
        places_to_strings([[0, 1]], ["a", name])
    assert places_to_orderings([[1, 0]], ["c", name]).tolist() == [[name, "c"]]


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("y", "arguments", "message"),
    [
        # ties and partial rankings
        (["a>b>c", "a>b=c"], {}, r"y\[1\] is 'a>b=c'\. Ties are for as_preferences and LabelRanker: break them"),
        (["a=b"], {}, r"y\[0\] is 'a=b'\. Ties"),
        ([[1, 2, 3], [1, 2, 2]], {}, r"y\[1\] has the rank 2 in columns 1 and 2\. Ties"),
        ([[1, 2.5, 2.5]], {}, r"y\[0\] has the rank 2\.5 in column 1: .* whole numbers\. Ties"),
        (["a>b>c", "a>b>c", "b>a"], {}, r"y\[2\] has 2 items, but y\[0\] has 3\. Partial rankings"),
        (["b>a"], {"items": list("abc")}, r"y\[0\] has 2 items, but items has 3\. Partial"),
        ([["a", "b"], ["a"]], {}, r"y\[1\] has 1 items, but y\[0\] has 2\. Partial"),
        ([["a", "b"], []], {}, r"y\[1\] has 0 items, but y\[0\] has 2"),
        ([[1, 2], [1, 2, 3]], {}, r"y\[1\] has 3 items, but y\[0\] has 2"),
        ([["a", ["b", "c"]]], {}, r"y\[0\] has \['b', 'c'\]\. Names .* ties or missing"),
        ([["a", "b"], ["a", ["b"]]], {}, r"y\[1\] has \['b'\]\. Names"),
        ([["a", "b"], ["b", None]], {}, r"y\[1\] has None\. Names .* missing items"),
        ([["a", "b"], ["b", np.nan]], {}, r"y\[1\] has nan"),
        ([["a", np.nan]], {}, r"y\[0\] has nan"),
        ([[np.nan, "a"]], {}, r"y\[0\] has nan"),
        # repeated, missing and unknown items
        (["a>b", "a>a"], {}, r"y\[1\] has 'a' 2 times and 'b' not at all"),
        (["a>b>a"], {}, r"y\[0\] has 'a' twice"),
        (["a>b"] * 3 + ["a>c", "a>a"], {}, r"y\[3\] has 'c', but y\[0\] does not"),
        (["a>b"] * 3 + ["a>c"], {"items": list("ab")}, r"y\[3\] has 'c', but items does not"),
        ([["a", "b"], ["A", "b"]], {}, r"y\[1\] has 'A', but y\[0\] does not. Rank the same"),
        ([["a", "b"], ["b", 1]], {}, r"y\[1\] has 1, but y\[0\] does not"),
        ([["a", 1]], {}, r"y\[0\] has 1\. Names must be all strings or all integers"),
        ([[3, 4], [4, 4]], {"form": "ordering"}, r"y\[1\] has 4 2 times and 3 not at all"),
        ([[3.0, 4.0]], {"form": "ordering"}, r"y\[0\] has 3\.0\. Names"),
        ([[1, 2]], {"form": "ordering", "items": ["1", "2"]}, r"y\[0\] has 1, but items does"),
        # ranks
        ([[1, 2, 3], [1, 2, 4]], {}, r"y\[1\] has no rank 3: .* each of 1 \.\.\. 3 once\. Partial"),
        ([[0, 1, 3]], {}, r"y\[0\] has no rank 2: .* 0 \.\.\. 2 once"),
        ([[2, 3]], {}, r"y\[0\] has no rank 1"),
        ([[2]], {}, r"y\[0\] has no rank 1"),
        ([[1, 2], [0, 1]], {}, r"y\[1\] counts ranks from 0, but y\[0\] from 1. Count all from the same"),
        ([[0, 1], [0, 1], [2, 1]], {}, r"y\[2\] counts ranks from 1, but y\[0\] from 0"),
        ([[0], [1]], {}, r"y\[1\] counts ranks from 1, but y\[0\] from 0"),
        ([[1, 2], [1, -2]], {}, r"y\[1\] has the rank -2 in column 1: .* not negative"),
        ([[1, 2], [np.nan, 1]], {}, r"y\[1\] has no rank in column 0, but NaN\. Partial"),
        ([[1, 2], [None, 1]], {}, r"y\[1\] has no rank in column 0, but NaN"),
        ([[1, 2], [1, np.inf]], {}, r"y\[1\] has the rank inf in column 1"),
        ([[1, 2], [1, 10**30]], {}, r"y\[1\] has no rank 2"),
        (np.array([[1, 2], [1, 2**64 - 1]], dtype=np.uint64), {}, r"y\[1\] has no rank 2"),
        ([[1, 2, 3]], {"items": list("ab")}, r"y\[0\] has 3 items, but items has 2"),
        # shapes
        ([], {}, "y has no rankings"),
        (np.empty((0, 3)), {}, "y has no rankings"),
        (np.empty((2, 0)), {}, r"y\[0\] has no items"),
        ([[], []], {}, r"y\[0\] has no items"),
        ([[]], {"form": "ordering"}, r"y\[0\] has no items"),
        (np.array([1, 2, 3]), {}, r"y must have the shape \(n, M\), got \(3,\). Put a single ranking into a list, \[y\]"),
        (np.zeros((2, 2, 2)), {}, r"y must have the shape \(n, M\), got \(2, 2, 2\)"),
        (np.array(3), {}, "y has no dimensions"),
        (np.array(["b", "a"]), {"form": "ordering"}, r"y must have the shape \(n, M\), got \(2,\)"),
        (np.array([["a>b"], ["b>a"]]), {"form": "string"}, r"y must have the shape \(n,\), got \(2, 1\)"),
        # strings
        ([""], {}, r"y\[0\] is '', where an item has no name"),
        (["a>b", "a>b", "a> >b"], {}, r"y\[2\] is 'a> >b', where an item has no name"),
        (["a>b>"], {}, r"y\[0\] is 'a>b>', where an item"),
        # the parameters
        (["a>b"], {"form": "rank"}, "form must be one of .*, got 'rank'"),
        (["a>b"], {"items": ["a", "a"]}, "items has 'a' twice"),
        (["a>b"], {"items": []}, "items has no items"),
    ],
)
def test_refused(y, arguments, message):
    with pytest.raises(ValueError, match=message):
        as_places(y, **arguments)
    with pytest.raises(ValueError, match=message.replace("y has", "x has").replace(r"y\[", r"x\[")
                       .replace("y must", "x must").replace(r"\[y\]", r"\[x\]")):
        as_places(y, **arguments, input_name="x")


@pytest.mark.parametrize(
    ("y", "arguments", "message"),
    [
        ("a>b", {}, "y must be rankings, not the string 'a>b'. Put a single ranking into a list"),
        (None, {}, "y must be a list or an array, not NoneType"),
        ({"a": 1}, {}, "not dict"),
        ((row for row in "ab"), {}, "not generator"),
        (["a>b", None], {}, r"y\[1\] is None, not a string such as 'b>a>c'"),
        ([np.nan, "a>b"], {}, r"y\[0\] is nan, not a string"),
        (pd.Series(["a>b", None]), {}, r"y\[1\] is .*, not a string"),
        ([b"a>b", "b>a"], {}, r"y\[0\] must be a list or an array, not b'a>b'"),
        ([["a", "b"]], {"form": "string"}, r"y\[0\] is \['a', 'b'\], not a string"),
        ([["a", "b"], "ab"], {}, r"y\[1\] must be a list or an array, not 'ab'.*form='string'"),
        (["a", "b"], {"form": "ordering"}, r"y\[0\] must be a list or an array, not 'a'"),
        ([["a", "b"], {"a", "b"}], {}, r"y\[1\] must be a list or an array"),
        ([["a", "b"], 3], {}, r"y\[1\] must be a list or an array, not 3"),
        ([1, 2, 3], {}, r"y\[0\] must be a list or an array, not 1. Put a single ranking into a list, \[y\]"),
        ([[1, 2], 3], {}, r"y\[1\] must be a list or an array, not 3"),
        ([[1, 2], [1, [2]]], {}, r"y\[1\]\[1\] is \[2\]: ranks are numbers"),
        ([[1, 2], ["1", 2]], {"form": "ranks"}, r"y\[1\]\[0\] is '1': ranks are numbers"),
        (np.array([["1", "2"]]), {"form": "ranks"}, "y has dtype <U1.*form='ordering'"),
        (np.array([[True, False]]), {}, "y has dtype bool"),
        ([[True, False]], {}, r"y\[0\]\[0\] is True: ranks are numbers"),
        (["a>b"], {"items": "ab"}, "items must be a list of names, not 'ab'"),
        (["a>b"], {"items": 2}, "items must be a list of names, not 2"),
    ],
)
def test_refused_types(y, arguments, message):
    with pytest.raises(TypeError, match=message):
        as_places(y, **arguments)


def test_the_first_bad_row_is_named():
    rng = np.random.default_rng(0)
    y = rng.permuted(np.tile(np.arange(6), (1000, 1)), axis=1)
    for b, value in ((3, 6), (500, -1), (999, None)):
        bad = y.copy()
        for row in (b, *range(b + 1, 1000, 7)):
            bad[row, 2] = bad[row, 1] if value is None else value
        with pytest.raises(ValueError, match=rf"y\[{b}\] has "):
            as_places(bad)
        with pytest.raises(ValueError, match=rf"y\[{b}\] has "):
            as_places(bad, "ordering")
        with pytest.raises(ValueError, match=rf"y\[{b}\] has "):
            as_places([">".join(map(str, row)) for row in bad])


@pytest.mark.parametrize("name", ["bodyfat", "glass", "vehicle", "vowel", "wine"])
def test_rankings_of_the_benchmark(data_folder, name):
    frame = pd.read_csv(data_folder / "label_ranking" / f"{name}.csv")
    places, items = as_places(frame["ranking"])
    assert items.tolist() == [chr(ord("a") + i) for i in range(len(items))]
    expected = [[text.split(">").index(item) for item in items] for text in frame["ranking"]]
    assert_array_equal(places, expected)
    assert places_to_strings(places, items).tolist() == frame["ranking"].tolist()
