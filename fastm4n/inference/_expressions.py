"""Regular expressions over labels, and the automata that accept what they match."""

import re

import numpy as np

# limits of what users may ask for, by memory and the depth of recursions: states of a deterministic
# automaton, states that an expression is written out in, and brackets within brackets
MOST_STATES = 10_000
MOST_PLACES = 20_000
MOST_DEEP = 100
# places in all sets of them that states of a deterministic automaton stand for: a second, and some
# hundred bytes each
MOST_HELD = 1_000_000

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<count>\{[^}]*\}?)|(?P<mark>[()|*+?.\[\]^])"
    r"|(?P<label>[^\s()|*+?.\[\]^{}'\"]+)|(?P<wrong>\S))")
_COUNT = re.compile(r"\{\s*(?:(\d+)\s*(,?)\s*(\d*)|,\s*(\d+))\s*\}")
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class _Parser:
    """A recursive descent over the tokens of an expression.

    A node is ("set", numbers of labels), ("all", nodes one after the other), ("any", nodes) or
    ("repeat", node, least, most or None).
    """

    def __init__(self, expression, numbers):
        self.expression, self.numbers, self.depth = expression, numbers, 0
        self.tokens, place = [], 0
        while expression[place:].strip():
            match = _TOKEN.match(expression, place)
            kind = match.lastgroup
            text = match[kind]
            if kind == "wrong":
                self.fail(match.start(kind), f"{text!r} is not closed")
            if kind == "quoted":
                kind, text = "label", text[1:-1]
            self.tokens.append((kind, text, match.start(match.lastgroup)))
            place = match.end()
        self.tokens.append(("end", "", len(expression)))
        self.next = 0

    def fail(self, place, what):
        raise ValueError(f"expression={self.expression!r}: {what}, at position {place}.")

    def peek(self, *marks):
        kind, text, _ = self.tokens[self.next]
        return kind == "mark" and text in marks

    def take(self):
        self.next += 1
        return self.tokens[self.next - 1]

    def whole(self):
        node = self.choice()
        kind, text, place = self.tokens[self.next]
        if kind != "end":
            self.fail(place, f"{text!r} closes nothing")
        return node

    def choice(self):
        nodes = [self.sequence()]
        while self.peek("|"):
            self.take()
            nodes.append(self.sequence())
        return nodes[0] if len(nodes) == 1 else ("any", nodes)

    def sequence(self):
        nodes = []
        while self.tokens[self.next][0] != "end" and not self.peek("|", ")"):
            nodes.append(self.repeated())
        return "all", nodes

    def repeated(self):
        node = self.atom()
        while self.peek("*", "+", "?") or self.tokens[self.next][0] == "count":
            kind, text, place = self.take()
            least, most = self.count(text, place) if kind == "count" else _REPEATS[text]
            node = "repeat", node, least, most
        return node

    def count(self, text, place):
        match = _COUNT.fullmatch(text)
        if match is None:
            self.fail(place, f"{text!r} is no {{m}}, {{m,}}, {{,n}} or {{m,n}}")
        least, comma, most, only = match.groups()
        if only is not None:
            least, comma, most = "0", ",", only
        numbers = int(least), (int(most) if most else None) if comma else int(least)
        if max(filter(None, numbers), default=0) > MOST_PLACES:
            self.fail(place, f"{text} is more than {MOST_PLACES} times")
        if numbers[1] is not None and numbers[1] < numbers[0]:
            self.fail(place, f"{text} has more at least than at most")
        return numbers

    def atom(self):
        kind, text, place = self.take()
        if kind == "label":
            return "set", [self.number(text, place)]
        if kind == "mark" and text == ".":
            return "set", list(range(len(self.numbers)))
        if kind == "mark" and text == "[":
            return self.set(place)
        if kind == "mark" and text == "(":
            self.depth += 1
            if self.depth > MOST_DEEP:
                self.fail(place, f"there are more than {MOST_DEEP} brackets within brackets")
            node = self.choice()
            self.depth -= 1
            if not self.peek(")"):
                self.fail(place, "'(' is not closed")
            self.take()
            return node
        return self.fail(place, f"{text!r} has nothing before it, or must be quoted as a label")

    def set(self, place):
        negated, chosen = self.peek("^"), []
        if negated:
            self.take()
        while not self.peek("]"):
            kind, text, at = self.take()
            if kind == "end":
                self.fail(place, "'[' is not closed")
            if kind != "label":
                self.fail(at, f"{text!r} is no label, in a set: quote it")
            chosen.append(self.number(text, at))
        self.take()
        if negated:
            chosen = set(range(len(self.numbers))).difference(chosen)
        return "set", sorted(set(chosen))

    def number(self, label, place):
        if label not in self.numbers:
            known = ", ".join(map(repr, list(self.numbers)[:10]))
            self.fail(place, f"{label!r} is not one of the labels ({known} ...)")
        return self.numbers[label]


class _Writer:
    """States with empty steps: steps[s], and arcs[s] as (numbers of labels, target)."""

    def __init__(self, expression):
        self.expression, self.steps, self.arcs, self.n_held = expression, [], [], 0

    def state(self):
        if len(self.steps) >= MOST_PLACES:
            raise ValueError(
                f"expression={self.expression!r:.100}: it has more than {MOST_PLACES} places once "
                "{m,n} is written out.")
        self.steps.append([])
        self.arcs.append([])
        return len(self.steps) - 1

    def write(self, node, a):
        """States for a node from state a on; returns the one it ends in."""
        kind, content, *limits = node
        if kind == "set":
            b = self.state()
            self.arcs[a].append((content, b))
            return b
        if kind == "all":
            for part in content:
                a = self.write(part, a)
            return a
        if kind == "any":
            b = self.state()
            for part in content:
                first = self.state()
                self.steps[a].append(first)
                self.steps[self.write(part, first)].append(b)
            return b
        least, most = limits
        for _ in range(least):
            # a state of its own each, so that what repeats nothing is counted as well
            first = self.state()
            self.steps[a].append(first)
            a = self.write(content, first)
        if most is None:
            loop, b = self.state(), self.state()
            self.steps[a] += [loop, b]
            self.steps[self.write(content, loop)] += [loop, b]
            return b
        b = self.state()
        for _ in range(most - least):
            self.steps[a].append(b)
            first = self.state()
            self.steps[a].append(first)
            a = self.write(content, first)
        self.steps[a].append(b)
        return b

    def closure(self, states):
        found, left = set(states), list(states)
        while left:
            more = [s for s in self.steps[left.pop()] if s not in found]
            found.update(more)
            left += more
        self.n_held += len(found)
        if self.n_held > MOST_HELD:
            raise ValueError(
                f"expression={self.expression!r:.100} takes more than {MOST_HELD} steps to make an "
                "automaton of: make it simpler, with smaller counts in {m,n}.")
        return frozenset(found)


def compiled(expression, names):
    """Transitions and accepting states of the automaton that accepts what an expression matches.

    Parameters
    ----------
    expression : str
    names : list of str
        Of the labels; distinct.

    Returns
    -------
    transitions : ndarray of int of shape (n_states, n_labels)
    accepting : ndarray of bool of shape (n_states,)
    """
    writer = _Writer(expression)
    tree = _Parser(expression, {name: i for i, name in enumerate(names)}).whole()
    start = writer.state()
    end = writer.write(tree, start)

    def of(states):
        moves = {}
        for s in states:
            for labels, target in writer.arcs[s]:
                for label in labels:
                    moves.setdefault(label, set()).add(target)
        return {label: writer.closure(targets) for label, targets in moves.items()}

    return minimal(*determined(
        writer.closure([start]), of, lambda states: end in states, len(names),
        f"expression={expression!r:.100}"))


def determined(start, moves_of, accepts, n_labels, what):
    """Number the states that can be reached: moves_of(state) maps labels to states."""
    numbers, order, rows = {start: 0}, [start], []
    for state in order:
        row = np.full(n_labels, -1)
        for label, target in moves_of(state).items():
            if target not in numbers:
                if len(order) >= MOST_STATES:
                    raise ValueError(
                        f"{what} needs an automaton of more than {MOST_STATES} states: make it "
                        "simpler, or intersect fewer.")
                numbers[target] = len(order)
                order.append(target)
            row[label] = numbers[target]
        rows.append(row)
    return np.array(rows), np.array([accepts(state) for state in order], dtype=bool)


def minimal(transitions, accepting):
    """The smallest automaton that accepts the same, the start first; it has a state always.

    By Hopcroft's refinement: blocks of states are split by what leads into the smaller half of the
    last split.
    """
    S, n_labels = len(accepting), transitions.shape[1]
    # the one behind all refuses: where there is no arc
    targets = np.vstack([np.where(transitions < 0, S, transitions), np.full((1, n_labels), S)])
    ends = np.append(accepting, False)
    sources = np.argsort(targets, axis=0, kind="stable")
    starts = [np.searchsorted(targets[sources[:, j], j], np.arange(S + 2)) for j in range(n_labels)]
    blocks = [set(np.flatnonzero(ends).tolist()), set(np.flatnonzero(~ends).tolist())]
    block_of = np.where(ends, 0, 1)
    waiting = [0, 1]
    while waiting:
        splitter = list(blocks[waiting.pop()])
        for j in range(n_labels):
            into = {}
            for s in splitter:
                for source in sources[starts[j][s] : starts[j][s + 1], j].tolist():
                    into.setdefault(int(block_of[source]), []).append(source)
            for block, moved in into.items():
                if len(moved) == len(blocks[block]):
                    continue
                blocks[block].difference_update(moved)
                block_of[moved] = len(blocks)
                blocks.append(set(moved))
                if block in waiting or len(moved) <= len(blocks[block]):
                    waiting.append(len(blocks) - 1)
                else:
                    waiting.append(block)
    table = {b: block_of[targets[next(iter(block))]].tolist() for b, block in enumerate(blocks)
             if block}
    # numbered as they are reached, without the one that refuses all
    refuses = int(block_of[S])
    order = [int(block_of[0])]
    number = {order[0]: 0}
    for block in order:
        for target in table[block]:
            if target != refuses and target not in number:
                number[target] = len(order)
                order.append(target)
    rows = [[-1 if target == refuses else number[target] for target in table[block]]
            for block in order]
    return np.array(rows, dtype=np.int64), np.array([
        bool(ends[next(iter(blocks[block]))]) for block in order])
