"""Build of the compiled kernels; everything else is declared in pyproject.toml.

Two environment variables change the build:

FASTM4N_DEBUG_BUILD=1
    bounds and initialisation checks in every Cython kernel; slow, for tests. (Checks for
    None cannot be had: they need the GIL, which the kernels do without.) A kernel that may not
    raise reports what a check finds through sys.unraisablehook; pytest makes it an error.
FASTM4N_SANITIZE=1
    address and undefined-behaviour sanitizers (GCC or Clang); the interpreter must
    then be started with the sanitizer's runtime preloaded.
"""

import multiprocessing
import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
DEBUG = os.environ.get("FASTM4N_DEBUG_BUILD", "0") not in ("", "0")
SANITIZE = os.environ.get("FASTM4N_SANITIZE", "0") not in ("", "0")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "binding": True,
}

if sys.platform == "win32":
    compile_args, link_args = ["/O2"], []
else:
    # no -march: the wide vectors are chosen at import, see fastm4n/_simd
    compile_args, link_args = ["-O3", "-std=gnu11", "-fno-math-errno", "-Wno-psabi"], []
    if SANITIZE:
        flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1"]
        compile_args += flags
        link_args += flags[:2]


def extensions():
    for source in sorted((ROOT / "fastm4n").rglob("*.pyx")):
        relative = source.relative_to(ROOT)
        yield Extension(
            ".".join(relative.with_suffix("").parts),
            [relative.as_posix()],
            include_dirs=["fastm4n/_simd"],
            depends=sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("fastm4n/_simd/*.h")),
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )


# workers that are not forked would run this file again
forks = multiprocessing.get_start_method() == "fork"

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        list(extensions()),
        compiler_directives=DIRECTIVES,
        build_dir="build/cython",
        force=DEBUG,
        nthreads=os.cpu_count() if forks else 0,
    ),
)
