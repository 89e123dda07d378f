"""Build of the compiled kernels; everything else is declared in pyproject.toml.

Three environment variables change the build:

FASTM4N_DEBUG_BUILD=1
    bounds and initialisation checks in every Cython kernel; slow, for tests. (Checks for
    None cannot be had: they need the GIL, which the kernels do without.) A kernel that may not
    raise reports what a check finds through sys.unraisablehook; pytest makes it an error.
FASTM4N_SANITIZE=1
    address and undefined-behaviour sanitizers (GCC or Clang); the interpreter must
    then be started with the sanitizer's runtime preloaded.
FASTM4N_COVERAGE=1
    counts how often each line runs (GCC), those of headers included; in place, and in a copy of
    the sources of its own. See .ci/line_coverage.py, which reads the counts.
"""

import hashlib
import multiprocessing
import os
import re
import sys
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
BUILD = "build/cython"
# what Cython would write into every module, above all its memoryviews, is a module of its own: a
# third of the time to translate, half of the time to compile
SHARED = "fastm4n._cyutility"
# modules that compile loops written in C
LOOPS = re.compile(r"^cdef extern from \"(?!Python)", re.MULTILINE)
DEBUG = os.environ.get("FASTM4N_DEBUG_BUILD", "0") not in ("", "0")
SANITIZE = os.environ.get("FASTM4N_SANITIZE", "0") not in ("", "0")
COVERAGE = os.environ.get("FASTM4N_COVERAGE", "0") not in ("", "0")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "binding": True,
    # what is pickled says how, by __reduce__; methods for all other classes are a fifth of the C
    "auto_pickle": False,
    # by these, lines of C are told to be of lines of Cython
    "emit_code_comments": DEBUG or COVERAGE,
    # what modules have in common is constant, or taken and given back in one operation; see
    # docs/releasing.md
    "freethreading_compatible": True,
}

if sys.platform == "win32":
    compile_args, link_args, fewer = ["/O2"], [], []
else:
    # no -march: the wide vectors are chosen at import, see fastm4n/_simd
    # no debug information, which Python asks for by itself: it takes a third of the time
    compile_args = ["-O3", "-g0", "-std=gnu11", "-fno-math-errno", "-Wno-psabi"]
    # -O3 is for loops written in C headers; elsewhere all that it would add to speed are vectors
    fewer = ["-O2"]
    link_args = []
    if sys.platform == "linux":
        fewer += ["-ftree-vectorize", "-fvect-cost-model=dynamic"]
        if not DEBUG and not COVERAGE:
            # to look for what Python's -Wall asks for, in C that nobody reads, takes its time, too
            compile_args += ["-w"]
            # no names of functions but those that Python looks for
            link_args += ["-Wl,--strip-all"]
    if SANITIZE:
        # checks take the compiler longer to optimise than optimised tests save
        flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1", "-O0"]
        compile_args += flags
        link_args, fewer = flags[:2], []
    if COVERAGE:
        # without the passes that merge or drop lines before counters are put in. Functions that
        # nothing calls are kept: they would not count otherwise
        flags = ["--coverage", "-O1", "-fprofile-update=prefer-atomic", "-fkeep-static-functions"]
        flags += [f"-fno-{name}" for name in (
            "early-inlining", "ssa-phiopt", "tree-ccp", "tree-copy-prop", "tree-dce",
            "tree-forwprop", "tree-fre")]
        compile_args += flags
        link_args, fewer = flags[:1], []


def extensions():
    for source in sorted((ROOT / "fastm4n").rglob("*.pyx")):
        relative = source.relative_to(ROOT)
        has_loops = LOOPS.search(source.read_text(encoding="utf-8"))
        yield Extension(
            ".".join(relative.with_suffix("").parts),
            [relative.as_posix()],
            include_dirs=["fastm4n/_simd"],
            depends=sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "fastm4n").rglob("*.h")),
            extra_compile_args=compile_args if has_loops else compile_args + fewer,
            extra_link_args=link_args,
        )
    yield Extension(SHARED, [SHARED.replace(".", "/") + ".c"],
                    extra_compile_args=compile_args + fewer, extra_link_args=link_args)


def digest():
    """What the C files are made of: Cython's version, its directives, and the sources."""
    found = hashlib.sha256(repr((Cython.__version__, DIRECTIVES)).encode())
    # headers, too: cythonize copies them beside the C files
    for source in sorted((ROOT / "fastm4n").rglob("*.p[yx][xd]")) + sorted(
            (ROOT / "fastm4n").rglob("*.h")):
        found.update(source.relative_to(ROOT).as_posix().encode() + b"\0" + source.read_bytes())
    return found.hexdigest()


def translated():
    """The extensions with C files as sources.

    pip builds in an environment that is new each time, so that the declarations that come with
    Cython are younger than C files of an earlier build, and `cythonize` alone would make all of
    them again: the second of two installations from one folder would take as long as the first.
    """
    found, made_of = list(extensions()), ROOT / BUILD / "made_of.txt"
    c_files = [f"{BUILD}/{Path(ext.sources[0]).with_suffix('.c').as_posix()}" for ext in found]
    present = digest()
    if (
        made_of.is_file() and made_of.read_text() == present
        and all((ROOT / name).is_file() for name in c_files)
    ):
        for ext, name in zip(found, c_files, strict=True):
            ext.sources = [name]
        return found
    # workers that are not forked would run this file again
    forks = multiprocessing.get_start_method() == "fork"
    found = cythonize(
        found, compiler_directives=DIRECTIVES, build_dir=BUILD, force=DEBUG or COVERAGE,
        shared_utility_qualified_name=SHARED, nthreads=os.cpu_count() if forks else 0)
    made_of.write_text(present)
    return found


def longest_first(found):
    """In an order in which no processor is left with one long file at the end."""

    def work(extension):
        has_loops = extension.extra_compile_args == compile_args
        return has_loops, (ROOT / extension.sources[0]).stat().st_size

    return sorted(found, key=work, reverse=True)


setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=longest_first(translated()),
)
