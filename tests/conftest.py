"""What the tests share."""

import os
from pathlib import Path

# scikit-learn's common checks include one of its array API support, which they skip
# unless SciPy is told at import to dispatch on such arrays
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def data_folder():
    """The folder of the data sets that the papers report on."""
    folder = os.environ.get("FASTM4N_DATA")
    if not folder:
        pytest.skip("The environment variable FASTM4N_DATA does not name a folder of data sets.")
    if not Path(folder).is_dir():
        pytest.fail(f"FASTM4N_DATA is {folder!r}, which is not a folder.")
    return Path(folder)
