"""A few cases of a product of many things, in which each pair of them meets."""

import itertools


def covering(cases):
    """A few of these tuples of equal length, with each pair of values of two places of all."""
    cases = [tuple(case) for case in cases]
    pairs = [frozenset(itertools.combinations(enumerate(case), 2)) for case in cases]
    seen, kept = set(), []
    # those with many new pairs first
    for least in range(max(map(len, pairs), default=0), 0, -1):
        for case, own in zip(cases, pairs, strict=True):
            if len(own - seen) >= least:
                seen |= own
                kept.append(case)
    return kept
