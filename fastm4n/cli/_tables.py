"""Columns of tables: whether the first line has names, and the role of each column."""

import re

from fastm4n.cli._output import CommandError, is_number

# names of targets, in this order. "y" comes after a single column that is not numbers, which must
# be the target as features are numbers
TARGETS = ("response", "target", "label", "class")
WEAK_TARGETS = ("y",)
_MISSING = ("", "na", "nan", "null", "none", "?")
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+")


class Head:
    """Decides the roles of columns from the first two rows, for `read_table`.

    Attributes
    ----------
    has_names : bool
        Whether the first line names the columns.
    width : int
        Number of columns.
    why : str
        How the target was found, in words. Empty if it was an argument.
    notes : list of str
        Remarks on guesses that may be wrong.
    n_labels : int
        Number of columns, the last ones, that are indicators of labels.
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
        # columns numbered by pandas or R
        counted = len(numbers) > 2 and numbers in (
            list(range(len(numbers))), list(range(1, len(numbers) + 1)))
        above = [
            name for name, value in zip(first, second, strict=True)
            if may_be_number(value) and value.strip().lower() not in _MISSING]
        if all(map(may_be_number, above)) and not counted:
            return not above
        if numbers:
            self.notes.append(
                f"line 1 of {self.args.data} is taken for names of columns, {len(numbers)} of "
                "which are numbers; pass --header no if it is an example")
        return True

    def _of_fit(self, names, sample, lines):
        """Target and columns of a table to fit, from the arguments or guessed."""
        args = self.args
        if len(names) == 1:
            raise lines.error(
                "there is one column, where features and a target were expected. Pass --delimiter "
                "if the line is not split at the right places.")
        if not self.has_names:
            self.notes.append(
                f"no line names the columns of {args.data}: they are called 1 to {len(names)}; "
                "pass --header yes if the first line does")
        chosen = {}
        for option in ("columns", "drop", "labels"):
            given = getattr(args, option) or ()
            chosen[option] = [place_of(name, names, f"--{option}") for name in given]
            if len(set(chosen[option])) < len(given):
                raise CommandError(f"--{option} names a column twice", 2)
        columns, drop, labels = chosen.values()
        if set(drop) & set(columns):
            raise CommandError("--columns and --drop name the same column", 2)
        if labels and args.target is not None:
            raise CommandError("--labels and --target exclude one another", 2)
        truth, role = labels, "a label"
        if not labels:
            role = "the target"
            truth = [
                self._target(names, sample, {*drop, *columns}) if args.target is None
                else place_of(args.target, names, "--target")]
        for option in ("columns", "drop"):
            for place in set(truth) & set(chosen[option]):
                raise CommandError(f"--{option}: {names[place]} is {role}", 2)
        columns = columns or [i for i in range(len(names)) if i not in {*truth, *drop}]
        if not columns:
            raise CommandError("--drop and --labels leave no columns of features", 2)
        self.n_labels = len(labels)
        return (None, columns + labels) if labels else (truth[0], columns)

    def _target(self, names, sample, taken=()):
        """Position of the column to predict. `why` says how it was found."""
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
            + (f", as {known}" if self.has_names else "") + "; --target chooses another")
        return free[-1]

    def _of_model(self, names, sample, lines):
        """Target and columns of a table that a fitted model predicts from."""
        columns, labels = self.reading.get("columns"), self.reading.get("labels")
        given = self.args.target
        if columns is None:  # fitted on another format
            if given is None and self.n_features == self.width:
                return None, None
            place = self._target(names, sample) if given is None else place_of(
                given, names, "--target")
            others = [i for i in range(len(names)) if i != place]
            return (place if self.truth or given is not None else None), others
        left = [given or self.reading.get("target")] if labels is None else list(labels)
        truth = self.truth
        if not self.reading.get("header", True):
            left = [self.reading["target"]] if labels is None else left
            left = [int(name) - 1 for name in left]
            columns, is_there = moved_up(
                [int(column) - 1 for column in columns], left, self.width, self.reading["width"])
            if columns is None or truth and not is_there:
                raise lines.error(
                    f"there are {self.width} column(s), but the model was fitted on "
                    f"{self.reading['width']}.")
            if labels is None and is_there and given is not None:
                left = [place_of(given, names, "--target")]
        elif not self.has_names:
            raise lines.error(
                "no line names the columns, and the model goes by their names, "
                f"{', '.join(columns):.200}. Add that line, or pass --header yes.")
        if not truth:
            return None, columns
        if labels is None:
            return left[0], columns
        self.n_labels = len(left)
        return None, [*columns, *left]


def moved_up(columns, left, width, fitted_width):
    """Columns of the fit by their positions now, and whether the columns of the truth are there.

    If a file lacks the columns `left`, the others have moved up. None for a file of any other
    width.
    """
    if width == fitted_width:
        return columns, True
    if width == fitted_width - len(left):
        return [i - sum(place < i for place in left) for i in columns], False
    return None, False


def place_of(text, names, option):
    """Position of a column by its name, or by its number from 1, or from the end if negative."""
    if text in names:
        return names.index(text)
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < abs(number) <= len(names):
        raise CommandError(
            f"{option}: there is no column {text!r}, only {', '.join(names):.200}", 2)
    return number - 1 if number > 0 else len(names) + number


def may_be_number(text):
    """Whether it is a number, or a missing or misspelt one."""
    text = text.strip()
    return (
        is_number(text) or text.lower() in _MISSING or _DECIMAL_COMMA.fullmatch(text) is not None)
