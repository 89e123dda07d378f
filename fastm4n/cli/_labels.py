"""Labels: text as in files, and numbers if their order matters."""

import math
from collections import Counter
from contextlib import suppress

from fastm4n.cli._output import CommandError, counted, listed


def value_of(text):
    """The finite number that a label spells, as an integer if it is whole, or None."""
    if "_" in text:  # which Python allows within numbers
        return None
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        value = float(text)
        if math.isfinite(value):
            return int(value) if value.is_integer() else value
    return None


def by_number(label):
    """Sorting key of labels: numbers by their values, then words."""
    value = value_of(str(label))
    return value is None, value or 0, str(label)


def settle(data, args):
    """Convert labels with an order to numbers, and note labels that spell one number."""
    known = data.reading.get("labels")  # names of sets of labels, which have no order
    texts = known if data.task == "multilabel" else _distinct(data.y)
    if data.task == "rankings" or not texts or type(next(iter(texts))) is not str:
        return
    values = {text: value_of(text) for text in sorted(texts, key=by_number)}
    spellings = {}
    for text, value in values.items():
        spellings.setdefault(text if value is None else value, []).append(text)
    costs = [getattr(args, "cost", None), *(
        value for name, value in getattr(args, "settings", ()) if name == "cost")]
    has_order = data.task == "ordered" or "absolute" in costs or "squared" in costs
    numbers = has_order and all(
        value is not None and abs(value) < 2**63 for value in values.values())
    if numbers:
        spelling = _as_numbers(data, values, getattr(args, "levels", None) or ())
    for value, alike in spellings.items():
        if len(alike) == 1:
            continue
        what = f"{', '.join(alike[:-1])} and {alike[-1]} are one number"
        data.notes.append(
            f"{what}, and one level, which predictions write as {spelling[value]}" if numbers else
            f"{what}, and {len(alike)} labels; write them alike if they are one label")


def _as_numbers(data, values, levels):
    """Replace labels by their values, and return the text of each value."""
    data.y = _mapped(data.y, values)
    spelling = {}
    for text in (*levels, *values):
        spelling.setdefault(value_of(text), text)
    changed = {str(value): text for value, text in spelling.items() if str(value) != text}
    if changed:
        data.reading["spelling"] = changed
        said = [f"{text} is read as {value}" for value, text in changed.items()]
        data.notes.append(
            f"labels that have an order are numbers: {listed(said)}; predictions are written as in "
            "the file")
    return spelling


def decoded(name, y):
    """An array of labels, with bytes decoded to text."""
    import numpy as np

    if y is None or y.dtype.kind != "S":
        return y
    try:
        return np.char.decode(y, "utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: the labels are bytes that are not UTF-8 ({error})") from error


def as_read(reading, labels):
    """Labels of a model, one array or several, in the spelling of the file of the fit."""
    spelling = reading.get("spelling", {})
    if isinstance(labels, list):
        return [as_read(reading, row) for row in labels]
    are_bytes = getattr(labels, "values", labels).dtype.kind == "S"
    if not spelling and not are_bytes:
        return labels
    texts = {
        label: label.decode("utf-8", "backslashreplace") if are_bytes else str(label)
        for label in _distinct(labels)}
    return _mapped(labels, {label: spelling.get(text, text) for label, text in texts.items()})


# ------------------------------------------------------------------------ data and a model


def of_model(data, classes):
    """Convert the labels of data to the type of the model's labels, numbers or text."""
    labels = _distinct(data.y)
    if not labels or data.task == "graphs":
        return
    are_text = type(next(iter(labels))) is str
    if classes.dtype.kind == "S":
        data.y = _mapped(data.y, {label: str(label).encode() for label in labels})
    elif classes.dtype.kind == "U" and not are_text:
        known = {}
        for text in classes.tolist():
            known.setdefault(value_of(text), text)
        data.y = _mapped(data.y, {label: known.get(label, str(label)) for label in labels})
    elif classes.dtype.kind in "biuf" and are_text:
        values = {text: value_of(text) for text in labels}
        for place, text in _places(data):
            if values[text] is None:
                raise CommandError(
                    f"{data.name}: the label {text!r} of {place} is no number, unlike the labels "
                    "of the model")
        data.y = _mapped(data.y, values)


def ignore(data, label):
    """Make the nodes of graphs with this label unlabelled, unless it is None."""
    import numpy as np

    from fastm4n.data._sequences import Sequences

    if data.task != "graphs" or data.y is None or label is None:
        return
    values = data.y.values
    if values.dtype.kind not in "iuf":
        values = values.astype(object)
    data.y = Sequences(np.where(values == label, np.int64(-1), values), data.y.offsets)


def unknown(data, classes):
    """A remark on labels unknown to a model, or None."""
    known = set(classes.tolist())
    counts = Counter(label for label in each(data.y) if label not in known)
    if data.task == "graphs":
        counts.pop(-1, None)  # nodes without a label
    if not counts:
        return None
    part = {"sequences": "token", "graphs": "node"}.get(data.task, "example")
    has = counted(counts.total(), f"{part} has a label", f"{part}s have labels")
    said = f"{has} that the model does not know: " + listed(
        f"{label} ({counts[label]})" for label in sorted(counts, key=by_number))
    alike = {value_of(str(label)): label for label in known}
    for label in sorted(counts, key=by_number):
        value = value_of(str(label))
        if value is not None and value in alike:
            return f"{said}; it knows {alike[value]}, the same number as {label}"
    return said


def none_known(data, classes):
    """A remark where a model knows none of the labels, or None."""
    found, known = set(each(data.y)), set(classes.tolist())
    if not found or found & {*known, *map(str, known)}:
        return None
    there, wanted = (listed(map(str, sorted(few, key=by_number))) for few in (found, known))
    said = f"the model knows none of the labels: there are {there}, and it knows {wanted}"
    if data.reading.get("attributes") == "crfsuite":
        said += "; a line begins with a label, also where it is not needed"
    return said


# ----------------------------------------------------------------------------- containers


def each(y):
    """List of all labels of nested lists, `Sequences` or an array."""
    if isinstance(y, list):
        return [label for labels in y for label in labels]
    return getattr(y, "values", y).tolist()


def _places(data):
    """Yield the place of each label, in words, and the label."""
    if data.task != "sequences":
        for i, label in enumerate(data.y.tolist(), 1):
            yield f"example {i}", label
        return
    for i, labels in enumerate(data.y, 1):
        for t, label in enumerate(labels if isinstance(labels, list) else labels.tolist(), 1):
            yield f"token {t} of sequence {i}", label


def _distinct(y):
    if y is None or getattr(y, "ndim", 1) != 1 or hasattr(y, "tocsr"):
        return set()
    return set(each(y))


def _mapped(y, values):
    """Labels, each replaced by its value."""
    import numpy as np

    from fastm4n.data._sequences import Sequences

    if isinstance(y, list):
        return [[values[label] for label in labels] for labels in y]
    if isinstance(y, Sequences):
        return Sequences(_mapped(y.values, values), y.offsets)
    labels, codes = np.unique(y, return_inverse=True)
    return np.array([values[label] for label in labels.tolist()])[codes]
