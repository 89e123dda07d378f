"""Sizes that files claim, checked before memory is taken for them."""

import numpy as np

# limits of the size of a table that a file claims: bytes, or times the stored bytes
GRANTED, TIMES = 1 << 26, 16
# characters of a label; as an array has room for the longest one in each place, arrays with longer
# labels must be in proportion to the file
LONGEST_LABEL = 100
# a weight for each number of a feature must fit in memory, even if few occur
MOST_FEATURES = 100_000_000


def check_claim(what, needed, stored):
    """Refuse a claimed size out of proportion to the stored bytes.

    Parameters
    ----------
    what : str
        The claim in words, for the error.
    needed, stored : int
        Bytes.
    """
    if needed > max(GRANTED, TIMES * stored):
        raise ValueError(
            f"{what}: that would take {needed} bytes, out of proportion to {stored} stored bytes")


def as_texts(texts, where, n=0, stored=0):
    """Texts as an array. An array of n such texts, from `stored` bytes, must be in proportion."""
    longest = max(map(len, texts), default=0)
    if longest > LONGEST_LABEL:
        n = max(n, len(texts))
        check_claim(
            f"{where}: a text has {longest} characters, and an array of {n} has room for as many "
            "in each place", 4 * longest * n, max(stored, sum(map(len, texts))))
    return np.array(texts, dtype=str)
