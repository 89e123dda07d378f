"""How benchmarks make estimators."""

from fastm4n import BlockFrankWolfe


def made(cls, *args, oracle_warm_start=None, **parameters):
    """An estimator; options of the solver among the parameters go into its BlockFrankWolfe.

    oracle_warm_start says whether mirror prox starts from its last answer, which users cannot
    choose.
    """
    known = BlockFrankWolfe._get_param_names()
    options = {name: parameters.pop(name) for name in known if name in parameters}
    if options or "solver" not in parameters:
        parameters["solver"] = BlockFrankWolfe(**options)
    if oracle_warm_start is not None:
        cls = type(cls.__name__, (cls,), {"_oracle_warm_start": oracle_warm_start})
    return cls(*args, **parameters)
