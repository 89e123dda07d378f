"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def attach(
    package: str, names: dict[str, str], modules: tuple[str, ...] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    names : dict
        For each name, the module that defines it, relative to the package.
    modules : tuple of str
        Submodules that are imported when they are first used.
    """
    def getattr_(name):
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{names[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    def dir_():
        return sorted({*vars(import_module(package)), *names, *modules})

    return getattr_, dir_
