"""How tests make estimators."""

from fastm4n import BlockFrankWolfe


def made(cls, *args, **parameters):
    """An estimator; options of the solver among the parameters go into its BlockFrankWolfe."""
    known = BlockFrankWolfe._get_param_names()
    options = {name: parameters.pop(name) for name in known if name in parameters}
    if options:
        parameters["solver"] = BlockFrankWolfe(**options)
    return cls(*args, **parameters)
