"""Counts of lines of Cython and C, of a small module that is compiled to count them."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("Cython")

SCRIPT = Path(__file__).resolve().parent.parent / ".ci" / "line_coverage.py"

pytestmark = [
    pytest.mark.skipif(not SCRIPT.is_file(), reason="under version control alone"),
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("gcc") or not shutil.which("gcov"),
        reason="GCC counts"),
]

KERNEL = '''
cdef extern from "loops.h" nogil:
    double fastm4n_clipped(double x)

cdef class Holder:
    cdef public double value

    def __init__(self, double value):
        if value != value:
            raise ValueError(
                f"value is {value}")
        self.value = value

cdef double below(double x) noexcept nogil:
    return x - 1.0

cdef double total(const double* values, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double found = 0.0
    for i in range(n):
        if values[i] > 0.0:
            found += fastm4n_clipped(values[i])
        else:
            found += below(values[i])
    return found

def run(values):
    cdef double[4] at
    cdef Py_ssize_t i
    for i in range(4):
        at[i] = values[i]
    with nogil:
        x = total(at, 4)
    return Holder(x).value
'''
LOOPS = '''
static inline double fastm4n_clipped(double x)
{
    if (x > 2.0) {
        return 2.0;
    }
    return x;
}

static double fastm4n_unused(double x)
{
    return 3.0 * x;
}
'''


def counting_script():
    script = importlib.util.spec_from_file_location("line_coverage", SCRIPT)
    module = importlib.util.module_from_spec(script)
    script.loader.exec_module(module)
    return module


def lines_of(text, *fragments):
    return [next(number for number, line in enumerate(text.splitlines(), 1) if fragment in line)
            for fragment in fragments]


def test_lines_that_ran_and_lines_that_did_not(tmp_path, monkeypatch):
    package, build = tmp_path / "fastm4n", tmp_path / "build"
    package.mkdir()
    (build / "cython" / "fastm4n").mkdir(parents=True)
    (build / "temp").mkdir()
    (package / "__init__.py").touch()
    (package / "kernel.pyx").write_text(KERNEL)
    (package / "loops.h").write_text(LOOPS)
    run = lambda *command: subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    c_file, module = "build/cython/fastm4n/kernel.c", "build/temp/kernel.o"
    run(sys.executable, "-m", "cython", "-3", "fastm4n/kernel.pyx", "-o", c_file)
    run("gcc", "-fPIC", "-w", "--coverage", "-O0", "-fkeep-static-functions", "-Ifastm4n",
        "-I" + sysconfig.get_path("include"), "-c", c_file, "-o", module)
    run("gcc", "-shared", module, "-o", "kernel.so", "--coverage")
    counting = counting_script()
    monkeypatch.setattr(counting, "ROOT", tmp_path)

    # all values above zero and below two
    run(sys.executable, "-c", "import kernel; kernel.run([1.0, 0.5, 1.5, 0.25])")
    found = counting.compiled()
    assert set(found) == {"fastm4n/kernel.pyx", "fastm4n/loops.h"}
    kernel, loops = found["fastm4n/kernel.pyx"], found["fastm4n/loops.h"]
    reached = lines_of(KERNEL, "for i in range(n)", "found += fastm4n", "at[i] = values", "return Holder")
    other = lines_of(KERNEL, "return x - 1.0", "found += below", 'f"value is')
    assert all(kernel[line] for line in reached)
    assert [kernel[line] for line in lines_of(KERNEL, "found += fastm4n")] == [4]
    assert all(line in kernel and not kernel[line] for line in other)
    for line in lines_of(KERNEL, "cdef public", "cdef double[4]", "cdef Py_ssize_t i", "cdef extern"):
        assert line not in kernel
    assert all(loops[line] for line in lines_of(LOOPS, "return x"))
    unreached = lines_of(LOOPS, "return 2.0", "return 3.0")
    assert all(line in loops and not loops[line] for line in unreached)
    assert not any(line in loops for line in lines_of(LOOPS, "}") )

    # and the others: counts are added to those of the run before
    run(sys.executable, "-c", "import kernel; kernel.run([-1.0, 5.0, 1.0, 1.0])")
    found = counting.compiled()
    assert all(found["fastm4n/kernel.pyx"][line] for line in other[:2])
    assert found["fastm4n/loops.h"][unreached[0]] == 1
    assert not found["fastm4n/kernel.pyx"][other[2]]


def test_nothing_was_built_that_counts(tmp_path, monkeypatch):
    counting = counting_script()
    monkeypatch.setattr(counting, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="FASTM4N_COVERAGE=1 python setup.py build_ext --inplace"):
        counting.compiled()
