"""The pictures of docs/plotting.md, made by running the page's own code.

Each image `display_*.png` on the page shows `display`, or a display's figure, as the code above
it has left it.

    python benchmarks/display_gallery.py

writes docs/images/display_*.png.
"""

import argparse
import re
from pathlib import Path

import matplotlib

PAGE = Path(__file__).resolve().parent.parent / "docs" / "plotting.md"
PART = re.compile(
    r"^```python\n(?P<code>.*?)^```$|^!\[[^]]*\]\((?P<image>images/display_[^)]*)\)$", re.M | re.S
)


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    matplotlib.use("Agg")
    namespace = {"__name__": "plotting"}
    for part in PART.finditer(PAGE.read_text("utf-8")):
        if part["code"]:
            exec(compile(part["code"], str(PAGE), "exec"), namespace)
        else:
            path = PAGE.parent / part["image"]
            namespace["display"].figure_.savefig(path, dpi=100)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
