"""How tests of properties draw: the same examples each time, scores with ties and infinities."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st


def examples(number):
    """So many examples of a test, without a limit of time, as machines may be busy."""
    return settings(derandomize=True, deadline=None, database=None, max_examples=number)


# ties are frequent, as are scores far apart
scores = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-9, 30.0, -700.0, 1e6])
forbidding = st.one_of(scores, st.just(-np.inf))
