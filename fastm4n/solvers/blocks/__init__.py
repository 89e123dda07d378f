"""Block-coordinate Frank-Wolfe: the engine, its passes and their schedule."""
