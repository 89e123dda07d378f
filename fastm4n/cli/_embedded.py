"""Data sets that need no file: tables of scikit-learn, and simulated data."""

from importlib.util import find_spec
from pathlib import Path

# name, task and description of the data sets that need no file
EMBEDDED = {
    "digits": ("classes", "handwritten digits, 8 x 8 pixels (scikit-learn)"),
    "iris": ("classes", "three species of iris (scikit-learn)"),
    "wine": ("classes", "three cultivars of wine (scikit-learn)"),
    "breast_cancer": ("classes", "malignant or benign (scikit-learn)"),
    "diabetes": ("ordered", "progression of diabetes in five levels (scikit-learn)"),
    "digit_lines": ("sequences", "the digits in lines of eleven, in the order of the data set"),
    "simulated_rankings": ("rankings", "linear utilities of four items, with noise"),
    "simulated_images": ("graphs", "grids of pixels: a noisy image of a disc, inside or outside"),
    "simulated_points": ("matchings", "six points found again in another frame, with noise"),
}
# bins of the target of a regression data set
N_LEVELS = 5
# scikit-learn's files of rows of features and a class, and the number of lines of names above
_TABLES = {
    "iris": ("iris.csv", 1), "wine": ("wine_data.csv", 1),
    "breast_cancer": ("breast_cancer.csv", 1), "digits": ("digits.csv.gz", 0),
}


def load(name, task=None):
    """Task, X and y. Classes become ordered levels, or levels classes, for that `task`."""
    import numpy as np

    from fastm4n.data._sequences import Sequences

    holds, _ = EMBEDDED[name]
    if {task, holds} == {"classes", "ordered"}:
        holds = task
    rng = np.random.default_rng(0)
    if name == "simulated_rankings":
        X = rng.normal(size=(300, 5))
        utilities = X @ rng.normal(size=(5, 4)) + rng.gumbel(scale=0.5, size=(300, 4))
        items = np.array(["a", "b", "c", "d"])
        y = np.array([">".join(row) for row in items[np.argsort(-utilities, axis=1)]])
    elif name == "simulated_images":
        X, y = _images(rng)
    elif name == "simulated_points":
        before = rng.normal(size=(80, 6, 2))
        y = rng.permuted(np.tile(np.arange(6), (80, 1)), axis=1)
        after = np.empty_like(before)
        np.put_along_axis(after, y[:, :, None], before + 0.2 * rng.normal(size=before.shape), 1)
        X = (before[:, :, None] - after[:, None]) ** 2
    else:
        X, y = _of_scikit_learn("digits" if name == "digit_lines" else name)
        if name == "diabetes":
            edges = np.quantile(y, np.arange(1, N_LEVELS) / N_LEVELS)
            y = np.searchsorted(edges, y, side="right")
        if name == "digit_lines":
            lengths = [11] * (len(y) // 11) + [len(y) % 11]
            X, y = Sequences.from_lengths(X / 16, lengths), Sequences.from_lengths(y, lengths)
    return holds, X, y


def _of_scikit_learn(name):
    """The result of scikit-learn's `load_NAME(return_X_y=True)`.

    Importing scikit-learn takes longer than a fit of a small data set. Its tables are therefore
    read from their files if these are as expected, and otherwise by its own function.
    """
    import numpy as np

    try:
        file, n_heads = _TABLES[name]
        folder = Path(find_spec("sklearn").origin).parent / "datasets" / "data"
        table = np.loadtxt(folder / file, delimiter=",", skiprows=n_heads)
        return table[:, :-1], table[:, -1].astype(np.int64)
    except (KeyError, AttributeError, TypeError, OSError, ValueError):
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True)


def _images(rng):
    """Grids of noisy pixels, inside and outside of a disc."""
    import numpy as np

    from fastm4n.data._graphs import Graphs
    from fastm4n.data._sequences import Sequences

    rows, columns = np.indices((6, 6))
    middles = rng.uniform(1, 4, size=(40, 2, 1, 1))
    inside = (rows - middles[:, 0]) ** 2 + (columns - middles[:, 1]) ** 2 < 4
    X = Graphs.from_grid(inside + rng.normal(scale=0.7, size=inside.shape))
    return X, Sequences(np.where(inside.ravel(), "inside", "outside"), X.node_offsets)
