"""Whether two fits, or what they say, are the same to the bit."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fastm4n import SequenceVectorizer

# attributes with a row for each example, where there is a kernel
BY_EXAMPLE = ("dual_coef_", "X_fit_")


def state(estimator):
    """What a fit leaves, but for times."""
    attributes = {
        name: value for name, value in vars(estimator).items()
        if name.endswith("_") and not name.startswith("_")}
    history = attributes.pop("history_")
    return {**attributes, **{key: v for key, v in history.items() if key != "seconds"}}


def assert_same_fit(first, second, order=None):
    """The same bits; in `order`, rows of the second are those of the first."""
    a, b = state(first), state(second)
    assert a.keys() == b.keys()
    for name in a:
        moved = order is not None and name in BY_EXAMPLE and len(a[name]) == len(order)
        one, other = a[name][order] if moved else a[name], b[name]
        if not have_same_bytes(one, other):  # which is quicker to see than what is equal
            assert_array_equal(one, other, err_msg=name)


def have_same_bytes(a, b):
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype.kind in "fiub" and (
        a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


def assert_same_answers(found, expected, atol=0.0):
    assert found.keys() == expected.keys()
    for method, values in found.items():
        others = expected[method]
        assert [*map(np.shape, values)] == [*map(np.shape, others)], method
        if not len(values):
            continue
        # of all examples at once, which is quicker
        one, other = (np.concatenate([*map(np.ravel, each)]) for each in (values, others))
        if atol:
            assert_allclose(one, other, rtol=0, atol=atol, err_msg=method)
        else:
            assert_array_equal(one, other, err_msg=method)


def same(a, b):
    """Assert that two values are equal to the bit, dtypes included."""
    if sparse.issparse(a):
        assert type(a) is type(b) and a.shape == b.shape
        for part in ("data", "indices", "indptr"):
            same(getattr(a, part), getattr(b, part))
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, SequenceVectorizer):
        same_state(a, b)
    else:
        assert type(a) is type(b) and a == b


def same_state(estimator, loaded):
    left_out = {
        "_warm_state", "_packed", "_packed_edges", "_names", "_ready", *estimator.get_params()}
    state = {key: value for key, value in vars(estimator).items() if key not in left_out}
    same(state, {key: value for key, value in vars(loaded).items() if key not in left_out})
