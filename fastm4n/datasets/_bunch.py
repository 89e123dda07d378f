"""The type of the readers' results."""


def bunch(**fields):
    """scikit-learn's `Bunch`, imported after a file was read without errors."""
    from sklearn.utils import Bunch

    return Bunch(**fields)
