"""Rooms of the package, the floors that they are on, and which file imports which."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent / "fastm4n"

# from the ground up; within a floor, too, a room imports only from those named before it
FLOORS = (
    ("base", "_simd"),
    ("inference",),
    ("outputs", "features", "penalties", "surrogates"),
    ("data", "datasets", "solvers"),
    ("tasks", "losses", "metrics"),
    ("estimators",),
    ("models", "calibration", "torch"),
    ("path", "crfsuite", "plotting"),
    ("cli",),
)
# they import from all floors, and nothing imports them but by LAZY
SIDE_ROOMS = ("distributed", "research", "reference")
# files in the root that belong to a room
AT_HOME = {"automata": "inference", "factors": "inference"}
# which files import side rooms, inside functions
LAZY = {
    ("cli._bench", "reference"), ("cli._complexity", "research"),
}


class Import(NamedTuple):
    """One file imports another; both are named without the package."""

    importer: str
    imported: str
    is_late: bool


def files(root=ROOT):
    """The modules of a package by name, each with its files; the root is ''."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi"):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.setdefault(name, []).append(path)
    return found


def imports(root=ROOT):
    """All imports between the files of a package: lazy ones, those of types, and cimports."""
    modules = files(root)
    found = set()
    for name, paths in modules.items():
        for path in paths:
            read = _of_python if path.suffix in (".py", ".pyi") else _of_cython
            for target, item, is_late in read(path.read_text(encoding="utf-8")):
                if target.partition(".")[0] != root.name:
                    continue
                target = target.partition(".")[2]
                full = ".".join(filter(None, (target, item)))
                target = full if full in modules else target
                if target in modules and target != name:
                    found.add(Import(name, target, is_late))
    return sorted(found)


def _of_python(text):
    tree = ast.parse(text)
    late = {
        id(inner) for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None, id(node) in late
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"relative import in line {node.lineno}"
            for alias in node.names:
                yield node.module, alias.name, id(node) in late


def _of_cython(text):
    text = re.sub(r"\(([^()]*)\)", lambda m: "(" + " ".join(m[1].split()) + ")", text)
    for indent, target, items in re.findall(
            r"^([ \t]*)from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]*)", text, re.M):
        for item in items.strip("()").split(","):
            yield target, item.split(" as ")[0].strip(), bool(indent)
    for indent, target in re.findall(r"^([ \t]*)c?import[ \t]+([\w.]+)", text, re.M):
        yield target, None, bool(indent)


def room_of(module):
    """The room of a module, named without the package; the root is ''."""
    first = module.partition(".")[0]
    return AT_HOME.get(first, first)


def circles(pairs):
    """Groups of names that import one another, by Tarjan's algorithm."""
    of = {}
    for one, other in pairs:
        of.setdefault(one, set()).add(other)
    number, low, stack, found = {}, {}, [], []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in of.get(name, ()):
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            group = set()
            while name not in group:
                group.add(stack.pop())
            if len(group) > 1:
                found.append(group)

    for name in list(of):
        if name not in number:
            visit(name)
    return found


def rooms_table(root=ROOT):
    """The table of docs/architecture.md: rooms from the ground up, by the first lines of each."""
    lines = ["| floor | room | what is in it |", "| --- | --- | --- |"]
    numbered = [(str(number), room) for number, floor in enumerate(FLOORS, 1) for room in floor]
    for floor, room in [*numbered, *(("side", room) for room in SIDE_ROOMS)]:
        path = root / room / "__init__.py"
        if not path.is_file():
            path = root / f"{room}.py"
        summary = ast.get_docstring(ast.parse(path.read_text("utf-8"))).partition("\n")[0]
        others = "".join(f", `{name}.py`" for name, home in AT_HOME.items() if home == room)
        shown = f"`{room}/`{others}" if path.name == "__init__.py" else f"`{path.name}`"
        lines.append(f"| {floor} | {shown} | {summary} |")
    return "\n".join(lines)


def written(text, table):
    """The page with the table in the place that its marks show."""
    before, rest = text.split("<!-- rooms -->")
    return f"{before}<!-- rooms -->\n{table}\n<!-- end of rooms -->" + rest.split(
        "<!-- end of rooms -->")[1]


if __name__ == "__main__":
    import sys

    PAGE = ROOT.parent / "docs" / "architecture.md"
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written(PAGE.read_text("utf-8"), rooms_table()), "utf-8")
    else:
        print(rooms_table())
