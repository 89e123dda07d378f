"""Finite automata over labels: the allowed labellings of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_number, refuse_where
from fastm4n.base.schemes import RULES, SpanRules, Tags
from fastm4n.inference._contexts import context_automaton
from fastm4n.inference._expressions import MOST_STATES, compiled, determined, minimal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, ClassVar

    from numpy.typing import ArrayLike

    from fastm4n.base.schemes import Rules
    from fastm4n.base.types import BoolArray, IntArray


class Automaton:
    """A deterministic finite automaton over labels.

    It accepts the labellings that end in an accepting state.

    Parameters
    ----------
    labels : list of labels
        Distinct labels. Other labels are never accepted.
    transitions : array-like of int of shape (n_states, n_labels)
        The state after each state and label, -1 for none. State 0 is the start.
    accepting : array-like of bool of shape (n_states,)
        States in which a labelling may end.

    Attributes
    ----------
    n_states : int

    See Also
    --------
    fastm4n.SequenceTagger : Tagger with automata as `constraints`.

    Notes
    -----
    ``a & b`` is the intersection, ``a | b`` the union, and ``~a`` the complement, over the labels
    of both. All other constructors give the smallest automaton, which has at most 10,000 states.

    Examples
    --------
    >>> from fastm4n.automata import Automaton
    >>> labels = ["B", "I", "O"]
    >>> valid = Automaton.bio(labels)
    >>> once = Automaton.from_regex("O* (B I*)? O*", labels)
    >>> once.accepts(["O", "B", "I"]), once.accepts(["B", "O", "B"])
    (True, False)
    >>> (valid & ~once).accepts(["B", "O", "B"])
    True
    """

    labels: list[Any]
    transitions: IntArray
    accepting: BoolArray

    def __init__(self, labels: Sequence[Any], transitions: ArrayLike, accepting: ArrayLike) -> None:
        self.labels = _labels(labels)
        transitions = np.asarray(transitions)
        accepting = np.asarray(accepting)
        S, R = len(accepting) if accepting.ndim == 1 else 0, len(self.labels)
        if accepting.dtype != bool or accepting.ndim != 1 or S == 0:
            raise ValueError("accepting must be a vector of booleans, one for each state.")
        if transitions.shape != (S, R) or transitions.dtype.kind not in "iu":
            raise ValueError(
                f"transitions must be integers of shape ({S}, {R}), n_states by n_labels, got "
                f"{transitions.dtype} of shape {transitions.shape}.")
        refuse_where(
            (transitions < -1) | (transitions >= S), "transitions", transitions,
            f"they are -1, or a state 0 ... {S - 1}.")
        self.transitions, self.accepting = transitions.astype(np.int64), accepting.copy()
        self._number = {label: i for i, label in enumerate(self.labels)}

    @property
    def n_states(self) -> int:
        return len(self.accepting)

    def __repr__(self) -> str:
        return f"<Automaton of {self.n_states} states over {len(self.labels)} labels>"

    def __eq__(self, other: Any) -> bool:
        """Whether both have the same labels, states and arcs in the same order."""
        return isinstance(other, Automaton) and self.labels == other.labels and np.array_equal(
            self.transitions, other.transitions) and np.array_equal(
            self.accepting, other.accepting)

    __hash__: ClassVar[None] = None

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_regex(cls, expression: str, labels: Sequence[Any]) -> Automaton:
        """Accept the labellings that match a regular expression over labels as a whole.

        Parameters
        ----------
        expression : str
            Labels, as written by `str`, separated by spaces. Quote labels with spaces or with
            special characters. ``( )`` and ``|`` are groups and alternatives. ``.`` is any label,
            ``[a b]`` either label, ``[^a b]`` any other label. ``*``, ``+``, ``?``, ``{m}``,
            ``{m,}``, ``{,n}`` and ``{m,n}`` repeat the preceding item.
        labels : list of labels

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> verse = Automaton.from_regex("(a '.' | [^a '.']){2,3}", ["a", "b", "."])
        >>> verse.accepts(["a", ".", "b"]), verse.accepts(["a", "b"])
        (True, False)
        """
        if not isinstance(expression, str):
            raise ValueError(f"expression must be a string, got {expression!r:.80}.")
        labels = _labels(labels)
        names = [str(label) for label in labels]
        if len(set(names)) < len(names):
            raise ValueError("expression needs labels with distinct `str`.")
        return cls(labels, *compiled(expression, names))

    @classmethod
    def anything(cls, labels: Sequence[Any]) -> Automaton:
        """Accept all labellings.

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> Automaton.anything(["a", "b"]).n_states
        1
        """
        labels = _labels(labels)
        return cls(labels, np.zeros((1, len(labels)), dtype=int), np.ones(1, dtype=bool))

    @classmethod
    def bio(cls, labels: Sequence[Any]) -> Automaton:
        """Accept valid BIO tags: "I-x" follows "B-x" or "I-x", and is not the first.

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> Automaton.bio(["B-x", "I-x", "O"]).accepts(["O", "I-x"])
        False
        """
        return cls.from_scheme("bio", labels)

    @classmethod
    def from_scheme(cls, scheme: Rules, labels: Sequence[Any]) -> Automaton:
        """Accept labels that mark spans by the rules of a scheme.

        Parameters
        ----------
        scheme : {"bio", "bioes", "bilou", "iob1"}
            As of :func:`fastm4n.metrics.spans`.
        labels : list of str
            ``O``, or a letter of the scheme, a hyphen and a type.

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> valid = Automaton.from_scheme("bioes", ["B-x", "E-x", "I-x", "O", "S-x"])
        >>> valid.accepts(["B-x", "E-x"]), valid.accepts(["B-x"])
        (True, False)
        """
        labels = _labels(labels)
        rules = SpanRules(labels, Tags(scheme, RULES), "labels")
        pairs = cls._of_pairs(labels, rules.after, rules.first, rules.last)
        return cls(labels, *minimal(pairs.transitions, pairs.accepting))

    @classmethod
    def _of_pairs(cls, labels, after, first, last):
        """Accept by the labels that may be first, follow one another, and be last."""
        may_be = np.vstack([first, after])  # state 1 + i is after label i
        return cls(
            labels, np.where(may_be, 1 + np.arange(len(labels)), -1), np.append(True, last))

    @classmethod
    def at_most(cls, n: int, chosen: Sequence[Any], labels: Sequence[Any]) -> Automaton:
        """Accept at most n positions with chosen labels.

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> Automaton.at_most(1, ["x"], ["x", "o"]).accepts(["x", "o", "x"])
        False
        """
        return cls._counted(n, chosen, labels, None)

    @classmethod
    def at_most_spans(
        cls, n: int, chosen: Sequence[Any], labels: Sequence[Any], begins: Sequence[Any] = (),
    ) -> Automaton:
        """Accept at most n spans, runs of neighbouring positions with chosen labels.

        Parameters
        ----------
        n : int
        chosen : list of labels
        labels : list of labels
            All labels.
        begins : list of labels, default=()
            Chosen labels that begin another span within a run, such as "B-x".

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> one = Automaton.at_most_spans(1, ["B", "I"], ["B", "I", "O"], begins=["B"])
        >>> one.accepts(["O", "B", "I"]), one.accepts(["B", "B"]), one.accepts(["B", "O", "I"])
        (True, False, False)
        """
        return cls._counted(n, chosen, labels, begins)

    @classmethod
    def _counted(cls, n, chosen, labels, begins):
        check_number("n", n, low=0, strict=False, integer=True)
        if n >= MOST_STATES // 2:
            raise ValueError(f"n must be less than {MOST_STATES // 2}, got {n}.")
        labels = _labels(labels)
        chosen = _numbers("chosen", chosen, labels)
        starts = None if begins is None else _numbers("begins", begins, labels)
        if starts is not None and not starts <= chosen:
            label = labels[min(starts - chosen)]
            raise ValueError(f"begins has {label!r}, which is not in chosen.")

        def moves(state):
            count, inside = state
            after = {}
            for j in range(len(labels)):
                new = j in chosen and (starts is None or not inside or j in starts)
                if count + new <= n:
                    after[j] = count + new, j in chosen and starts is not None
            return after

        return cls(labels, *minimal(*determined(
            (0, False), moves, lambda state: True, len(labels), "at_most")))

    # -------------------------------------------------------------------- operations

    def accepts(self, sequence: Iterable[Any]) -> bool:
        """Whether a labelling is accepted.

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> Automaton.from_regex("a b?", ["a", "b"]).accepts(["b"])
        False
        """
        state = 0
        for label in sequence:
            number = self._number.get(label, -1)
            state = -1 if number < 0 else self.transitions[state, number]
            if state < 0:
                return False
        return bool(self.accepting[state])

    def __and__(self, other: Automaton) -> Automaton:
        return self._both(other, lambda a, b: a and b)

    def __or__(self, other: Automaton) -> Automaton:
        return self._both(other, lambda a, b: a or b)

    def __invert__(self) -> Automaton:
        targets = np.where(self.transitions < 0, self.n_states, self.transitions)
        beyond = np.full((1, len(self.labels)), self.n_states)
        return Automaton(self.labels, *minimal(
            np.append(targets, beyond, axis=0), ~np.append(self.accepting, False)))

    def _both(self, other, accepts):
        if not isinstance(other, Automaton):
            return NotImplemented
        labels = self.labels + [label for label in other.labels if label not in self._number]
        parts = [automaton._rows(labels) for automaton in (self, other)]

        def ends(state):
            return accepts(*(
                s >= 0 and bool(automaton.accepting[s])
                for s, automaton in zip(state, (self, other), strict=True)))

        def moves(state):
            after = [
                rows[s] if s >= 0 else np.full(len(labels), -1)
                for s, rows in zip(state, parts, strict=True)]
            pairs = enumerate(zip(*(row.tolist() for row in after), strict=True))
            return {j: pair for j, pair in pairs if pair != (-1, -1)}

        return Automaton(labels, *minimal(*determined(
            (0, 0), moves, ends, len(labels), "this combination")))

    def _rows(self, labels):
        """Transitions over other labels, in their order."""
        numbers = [self._number.get(label, -1) for label in labels]
        found = np.where(
            np.array(numbers) >= 0, self.transitions[:, numbers] if self.labels else -1, -1)
        return found.reshape(self.n_states, len(labels))

    def over(self, labels: Sequence[Any]) -> Automaton:
        """Convert to a `LabelAutomaton` of these labels, for `fastm4n.inference.automaton`.

        Its features are bigrams. Label i before j has place i s + j, where s is
        ``fastm4n.outputs.row_stride(len(labels))``.

        Examples
        --------
        >>> from fastm4n.automata import Automaton
        >>> Automaton.at_most(1, ["b"], ["a", "b"]).over(["a", "b"]).n_states
        4
        """
        from fastm4n._simd._loops import row_stride

        labels = _labels(labels)
        return context_automaton(
            len(labels), row_stride(len(labels)), (), (self._rows(labels), self.accepting))


def _labels(labels):
    labels = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if not labels:
        raise ValueError("labels must have a label.")
    try:
        distinct = set(labels)
    except TypeError as error:
        raise ValueError(f"labels must be hashable: {error}.") from error
    if len(distinct) < len(labels):
        seen = set()
        twice = next(label for label in labels if label in seen or seen.add(label))
        raise ValueError(f"labels has {twice!r} twice.")
    return labels


def _numbers(name, chosen, labels):
    if isinstance(chosen, (str, bytes)):
        raise ValueError(f"{name} must be a list of labels, got {chosen!r}.")
    found = set()
    for label in chosen:
        if label not in labels:
            raise ValueError(f"{name} has {label!r}, which is not in labels.")
        found.add(labels.index(label))
    return found
