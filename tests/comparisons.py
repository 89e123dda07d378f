"""Whether two fits, or what they say, are the same to the bit."""

from numpy.testing import assert_allclose, assert_array_equal

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
        assert_array_equal(a[name][order] if moved else a[name], b[name], err_msg=name)


def assert_same_answers(found, expected, atol=0.0):
    assert found.keys() == expected.keys()
    for method, values in found.items():
        for one, other in zip(values, expected[method], strict=True):
            if atol:
                assert_allclose(one, other, rtol=0, atol=atol, err_msg=method)
            else:
                assert_array_equal(one, other, err_msg=method)
