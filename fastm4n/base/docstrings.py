"""Docstrings with parts that several share, written once.

A line ``[name]`` in a docstring stands for a part. `documented` inserts the parts, for ``help``
and the documentation.
"""

import inspect
import re

_MARK = re.compile(r"^( *)\[(\w+)\]$", re.MULTILINE)


def documented(parts, **words):
    """Decorator: fill in the parts of the docstrings of a function, or a class and its methods.

    Parameters
    ----------
    parts : dict of str
    **words : str
        Values of names in braces in the parts.
    """
    def part(mark):
        lines = parts[mark[2]].strip("\n").format(**words).split("\n")
        return "\n".join(mark[1] + line if line else "" for line in lines)

    def decorate(of):
        for each in (of, *vars(of).values()) if inspect.isclass(of) else (of,):
            each = getattr(each, "__func__", each)  # of a class method
            if (each is of or inspect.isfunction(each)) and each.__doc__:  # not under python -OO
                each.__doc__ = _MARK.sub(part, each.__doc__)
        return of

    return decorate
