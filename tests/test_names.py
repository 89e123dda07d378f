"""The table of distinct strings."""

import random
import sys

import numpy as np
import pytest

from fastm4n.data._tokens import Names

ALPHABETS = ("a", "ab", "\0a", "aé", "ab\u0440\u4e2d", "\ud800\udfff\ue000\uffff\U00010000\U0010ffff")


def many(seed, n=300):
    """Strings of all widths that are like each other, of all lengths around those of words."""
    rng = random.Random(seed)
    names = {""}
    while len(names) < n:
        alphabet = rng.choice(ALPHABETS[1:])
        tail = "".join(rng.choices(alphabet, k=rng.randrange(20)))
        names.add(rng.choice(("", "a" * rng.randrange(40), "w[-1]|w[0]=")) + tail)
    names = sorted(names)
    rng.shuffle(names)
    return names


@pytest.mark.parametrize("seed", range(5))
def test_strings_are_as_they_were(seed):
    names = many(seed)
    table = Names(names)
    assert len(table) == len(names) and table.strings() == names


@pytest.mark.parametrize("seed", range(5))
def test_order_is_that_of_python(seed):
    names = many(seed)
    table = Names(names)
    rank = table.sort()
    assert table.strings() == sorted(names)
    assert rank.dtype == np.int32
    assert [sorted(names)[column] for column in rank] == names


def test_order_of_strings_that_end_alike():
    names = ["a" * n + "\0" * m for n in range(20) for m in range(20)]
    random.Random(0).shuffle(names)
    table = Names(names)
    table.sort()
    assert table.strings() == sorted(names)


@pytest.mark.parametrize("seed", range(3))
def test_small_counts_are_left_out(seed):
    names = many(seed)
    counts = np.random.default_rng(seed).integers(0, 4, len(names)).astype(np.int32)
    table = Names(names)
    rank = table.sort(counts, 2)
    kept = sorted(name for name, count in zip(names, counts) if count >= 2)
    assert table.strings() == kept and len(table) == len(kept)
    assert [None if new < 0 else kept[new] for new in rank] == [
        name if count >= 2 else None for name, count in zip(names, counts)]
    # those that are left are found, and the others are as good as new
    again = Names(table.strings())
    assert again.strings() == kept


def test_many_names():
    names = [f"w[{i % 5}]={i}" for i in range(20_000)]
    table = Names(names)
    assert table.strings() == names
    # text, and 8 bytes of a slot for at least a third of a name
    assert sys.getsizeof(table) < 20_000 * (8 + 16 + 24) + 1000
    table.sort()
    assert table.strings() == sorted(names)


def test_no_names():
    table = Names()
    assert len(table) == 0 and table.strings() == [] and table.sort().size == 0


def test_names_are_distinct_strings():
    with pytest.raises(ValueError, match="'b' is there twice"):
        Names(["a", "b", "b"])
    with pytest.raises(TypeError, match="must be strings, not 3"):
        Names(["a", 3])
