"""What readers return."""


def bunch(**fields):
    """scikit-learn's `Bunch`, which is imported when something was read.

    What the file says wrong is told before, and readers that return arrays need none.
    """
    from sklearn.utils import Bunch

    return Bunch(**fields)
