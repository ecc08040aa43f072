"""Prints the default catalog as YAML: ``python -m squirrel.catalog``.

The C library and the command ask this way for what plug-ins offer, where the environment variable
SQUIRREL_PYTHON names an interpreter. Sources that were read from far away, which are opened with
care, are a catalog of their own behind the line ``# from elsewhere``. The last line is ``# whole``.
On failure the first line is the error's code and message. What plug-ins print goes to standard error.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            from squirrel.catalog import Catalog
            from squirrel.catalog.catalog import _untrusted

            found = Catalog.default()
            far = found.filter(_untrusted)
            text = found.filter(lambda source: not _untrusted(source)).to_str()
            if len(far):
                text += "# from elsewhere\n" + far.to_str()
        except Exception as error:
            said = "; ".join([str(error), *getattr(error, "__notes__", ())])
            out.write(f"{getattr(error, 'code', 'user')}: {' '.join(said.split())}\n")
            return 1
        out.write(text + "# whole\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
