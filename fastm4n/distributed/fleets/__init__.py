"""Members that work side by side, each on its own part of the data, and one driver.

`Fleet` is the interface, with the implementations `InProcessFleet` and `ProcessFleet`.
"""

from fastm4n.distributed.fleets._base import Fleet, Lost, NoMember
from fastm4n.distributed.fleets._in_process import InProcessFleet
from fastm4n.distributed.fleets._processes import ProcessFleet

__all__ = ["Fleet", "InProcessFleet", "Lost", "NoMember", "ProcessFleet"]
