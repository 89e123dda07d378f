"""Sizes that files claim, checked before memory is taken for them."""

import numpy as np

# bytes of tables whose size a file claims by a number alone: so many are always granted, and where
# more is stored, so many times that
GRANTED, TIMES = 1 << 26, 16
# characters of a label that any number of labels may have; arrays have room for the longest in each
# place, and where it is longer, they must not be out of proportion to the file
LONGEST_LABEL = 100
# a weight for each number of a feature must fit in memory, however few of them occur
MOST_FEATURES = 100_000_000


def check_claim(what, needed, stored):
    """Refuse a number that memory would be taken by, out of all proportion to what is stored.

    Parameters
    ----------
    what : str
        The claim in words, for the error.
    needed, stored : int
        Bytes.
    """
    if needed > max(GRANTED, TIMES * stored):
        raise ValueError(
            f"{what}: that would take {needed} bytes, out of all proportion to the {stored} bytes "
            "stored of them")


def as_texts(texts, where, n=0, stored=0):
    """Texts as an array, of which one of n items can be made; `stored` bytes are there of these."""
    longest = max(map(len, texts), default=0)
    if longest > LONGEST_LABEL:
        n = max(n, len(texts))
        check_claim(
            f"{where}: a text has {longest} characters, and an array of {n} has room for as many "
            "in each place", 4 * longest * n, max(stored, sum(map(len, texts))))
    return np.array(texts, dtype=str)
