"""The rooms of the package lie on floors: every import points down, and none goes in a circle."""

import pytest
from floors import (
    FLOORS,
    LAZY,
    ROOT,
    SIDE_ROOMS,
    circles,
    files,
    imports,
    room_of,
    rooms_table,
    written,
)

ROOMS = [room for floor in FLOORS for room in floor]
HEIGHT = {room: height for height, room in enumerate(ROOMS)}
FOUND = imports()


def upward():
    found = set()
    for one, other, is_late in FOUND:
        room, below = room_of(one), room_of(other)
        if not room or room == "__main__" or room == below or (
                is_late and (one, below) in LAZY) or room in SIDE_ROOMS and below in HEIGHT:
            continue
        # what the root offers, its own floor has, too
        if not below or below in SIDE_ROOMS or HEIGHT[below] > HEIGHT[room]:
            found.add((one, other))
    return found


def test_every_import_points_down():
    assert not upward()


def test_no_files_import_one_another():
    # the root offers names that it does not use
    assert not circles((one, other) for one, other, _ in FOUND if one)


def test_every_lazy_import_of_a_side_room_is_still_there():
    assert {(one, room_of(other)) for one, other, is_late in FOUND if is_late} >= LAZY


def test_rooms_floors_and_the_root():
    modules = files()
    rooms = {room_of(name) for name in modules} - {"", "__main__"}
    assert rooms == {*ROOMS, *SIDE_ROOMS}
    assert len(rooms) <= 24 and len(FLOORS) + 1 <= 10
    assert len(list(ROOT.glob("*.py"))) <= 6


@pytest.mark.parametrize("text, found", [
    ("def f():\n    from fastm4n.base import npz", ("base.npz", True)),
    ("if TYPE_CHECKING:\n    from fastm4n.base.npz import x", ("base.npz", False)),
    ("import fastm4n.base.npz", ("base.npz", False)),
])
def test_every_kind_of_import_counts(tmp_path, text, found):
    package = tmp_path / "fastm4n"
    (package / "base").mkdir(parents=True)
    for name, content in (("base/__init__", ""), ("base/npz", ""), ("one", text)):
        (package / f"{name}.py").write_text(content)
    (package / "two.pyx").write_text(
        "from fastm4n.base.npz cimport (\n    a, b)\nfrom fastm4n.one import c as d\n")
    found_here = {(one, *rest) for one, *rest in imports(package)}
    assert {("one", *found), ("two", "base.npz", False), ("two", "one", False)} <= found_here


def test_the_table_of_rooms_is_made_from_the_tree():
    text = (ROOT.parent / "docs" / "architecture.md").read_text("utf-8")
    assert written(text, rooms_table()) == text, "run python tests/floors.py --write"
