"""What is understood of a table: whether its first line has names, and which column is what."""

import re

from fastm4n.cli._output import CommandError

# names of targets, in this order; a column of features must hold numbers, so that a single column
# that does not is the target for certain, which a name such as y is not
TARGETS = ("response", "target", "label", "class")
WEAK_TARGETS = ("y",)
_MISSING = ("", "na", "nan", "null", "none", "?")
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+")


class Head:
    """Decides from the first two rows, for `read_table`; what it found is in its attributes.

    Attributes
    ----------
    has_names : bool
        Whether the first line names the columns.
    width : int
        Number of columns.
    why : str
        How the target was found, in words; empty if it was given.
    notes : list of str
        What the user may want to correct.
    n_labels : int
        How many of the columns, the last ones, are indicators of labels.
    """

    def __init__(self, args, reading, n_features, *, fitted, truth):
        self.args, self.reading, self.n_features = args, reading, n_features
        self.fitted, self.truth = fitted, truth
        self.has_names, self.width, self.why, self.notes = True, 0, "", []
        self.n_labels = 0

    def __call__(self, first, second, lines):
        self.width = len(first)
        self.has_names = self._names_columns(first, second)
        names = first if self.has_names else [str(i + 1) for i in range(self.width)]
        sample = (second or first) if self.has_names else first
        choose = self._of_model if self.fitted else self._of_fit
        target, columns = choose(names, sample, lines)
        return names, not self.has_names, target, columns

    def _names_columns(self, first, second):
        """Whether the first row has names: words above numbers."""
        if self.args.header is not None:
            return self.args.header == "yes"
        of_model = self.reading.get("columns") if self.reading.get("header", True) else None
        if of_model and set(of_model) <= set(first):
            return True
        if any(name.lower() in (*TARGETS, *WEAK_TARGETS, "ranking") for name in first):
            return True
        if second is None:
            return not any(map(is_number, first))
        numbers = [float(name) for name in first if is_number(name)]
        # columns that pandas or R has numbered
        counted = len(numbers) > 2 and numbers in (
            list(range(len(numbers))), list(range(1, len(numbers) + 1))
        )
        above = [
            name for name, value in zip(first, second, strict=True)
            if may_be_number(value) and value.strip().lower() not in _MISSING
        ]
        words = [name for name in above if not may_be_number(name)]
        if not words and not counted:
            return not above
        if numbers:
            self.notes.append(
                f"line 1 of {self.args.data} is taken for names of columns, {len(numbers)} of "
                "which are numbers; pass --header no if it is an example"
            )
        return True

    def _of_fit(self, names, sample, lines):
        if len(names) == 1:
            raise lines.error(
                "there is one column, where features and a target were expected. Pass --delimiter "
                "if the line is not split at the right places."
            )
        if not self.has_names:
            self.notes.append(
                f"no line names the columns of {self.args.data}: they are called 1 to "
                f"{len(names)}; pass --header yes if the first line does"
            )
        columns, target = self.args.columns, self.args.target
        left_out = {_place(name, names, "--drop") for name in self.args.drop or ()}
        chosen = {_place(name, names, "--columns") for name in columns or ()}
        labels = [_place(name, names, "--labels") for name in self.args.labels or ()]
        if labels:
            return self._of_labels(names, labels, left_out, columns, chosen)
        if target is None:
            place = self._target(names, sample, left_out | chosen)
        else:
            place = _place(target, names, "--target")
        if place in left_out:
            raise CommandError(f"--drop: {names[place]} is the target", 2)
        if columns is None:
            columns = [i for i in range(len(names)) if i != place and i not in left_out]
            if not columns:
                raise lines.error("there are no columns of features.")
        else:
            columns = [_place(name, names, "--columns") for name in columns]
            if len(chosen) < len(columns):
                raise CommandError("--columns names a column twice", 2)
            if left_out & chosen:
                raise CommandError("--columns and --drop name the same column", 2)
            if place in chosen:
                raise CommandError(f"--columns: the target {names[place]} is among them", 2)
        return place, columns

    def _of_labels(self, names, labels, left_out, columns, chosen):
        """No target: columns of features, then those of labels."""
        taken = set(labels)
        if self.args.target is not None:
            raise CommandError("--labels and --target: give one of them", 2)
        if len(taken) < len(labels):
            raise CommandError("--labels names a column twice", 2)
        if taken & (left_out | chosen):
            name = names[min(taken & (left_out | chosen))]
            raise CommandError(f"--labels: {name} is left out, or a feature", 2)
        if columns is None:
            places = [i for i in range(len(names)) if i not in taken | left_out]
        else:
            places = [_place(name, names, "--columns") for name in columns]
        if not places:
            raise CommandError("--labels and --drop leave no columns of features", 2)
        self.n_labels = len(labels)
        return None, places + labels

    def _target(self, names, sample, taken):
        """Position of the column that is to be predicted; `why` says how it was found."""
        free = [i for i in range(len(names)) if i not in taken]
        if not free:
            raise CommandError("--columns and --drop leave no column for the target", 2)
        lower = [name.lower() for name in names]
        words = [i for i in free if not may_be_number(sample[i])]
        for known in (TARGETS, WEAK_TARGETS):
            for name in known:
                if self.has_names and name in (lower[i] for i in free):
                    self.why = "by its name"
                    return next(i for i in free if lower[i] == name)
            if len(words) == 1:
                self.why = "the only column that is not numbers"
                return words[0]
        self.why = "the last column"
        known = f"none is called {', '.join(TARGETS)} or {WEAK_TARGETS[0]}"
        self.notes.append(
            f"the last column of {self.args.data}, {names[free[-1]]}, is taken for the target"
            + (f", as {known}" if self.has_names else "") + "; --target chooses another"
        )
        return free[-1]

    def _of_model(self, names, sample, lines):
        """Columns of a table that a fitted model is to predict from."""
        columns, target = self.reading.get("columns"), self.reading.get("target")
        if self.reading.get("labels") is not None and columns is not None:
            return self._labels_of_model(columns, self.reading["labels"], names, lines)
        if columns is None:  # fitted on other than tables
            if self.args.target is None and (self.n_features == self.width or not self.truth):
                if self.n_features == self.width:
                    return None, None
                return None, [
                    i for i in range(len(names)) if i != self._target(names, sample, set())
                ]
            place = self._target(names, sample, set()) if self.args.target is None else _place(
                self.args.target, names, "--target")
            return place, [i for i in range(len(names)) if i != place]
        given = self.args.target
        if self.reading.get("header", True):
            self._check_names(columns, lines)
            return (given or target if self.truth else None), columns
        # by position; the truth may be missing, and what stood behind it then moves up
        places, width = [int(column) - 1 for column in columns], self.reading["width"]
        place = int(target) - 1
        if self.width == width - 1 and not self.truth:
            return None, [i - (i > place) for i in places]
        if self.width != width:
            raise lines.error(
                f"there are {self.width} column(s), but the model was fitted on {width}."
            )
        if given is not None:
            place = _place(given, names, "--target")
        return (place if self.truth else None), places


    def _check_names(self, columns, lines):
        if not self.has_names:
            raise lines.error(
                "no line names the columns, and the model goes by their names, "
                f"{', '.join(columns):.200}. Add that line, or pass --header yes."
            )

    def _labels_of_model(self, columns, labels, names, lines):
        """Columns that a fitted model is to predict from, and those of labels if they are there."""
        self.n_labels = len(labels) if self.truth else 0
        if self.reading.get("header", True):
            self._check_names(columns, lines)
            return None, [*columns, *(labels if self.truth else [])]
        # by position; labels may be missing, and what stood behind them then moves up
        width = self.reading["width"]
        places, of_labels = ([int(name) - 1 for name in part] for part in (columns, labels))
        if self.width == width - len(labels) and not self.truth:
            return None, [i - sum(label < i for label in of_labels) for i in places]
        if self.width != width:
            raise lines.error(
                f"there are {self.width} column(s), but the model was fitted on {width}."
            )
        return None, places + (of_labels if self.truth else [])


def _place(text, names, option):
    """Position of a column that is named, or numbered from 1, or from the end if negative."""
    if text in names:
        return names.index(text)
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < abs(number) <= len(names):
        raise CommandError(
            f"{option}: there is no column {text!r}; the columns are {', '.join(names):.200}", 2
        )
    return number - 1 if number > 0 else len(names) + number


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def may_be_number(text):
    """Whether it is a number, or was meant for one."""
    text = text.strip()
    return (
        is_number(text) or text.lower() in _MISSING or _DECIMAL_COMMA.fullmatch(text) is not None
    )
