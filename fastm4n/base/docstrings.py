"""Docstrings with parts that several share, written once.

A docstring has a line ``[name]`` where a part stands; `documented` fills them in, so that ``help``
and the documentation read one whole text.
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
        What the parts, where they have a name in braces, say of this one.
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
