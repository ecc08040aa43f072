#!/usr/bin/env python3
"""The catalogs of this machine's user, the project's own on top, and a look into one source.

    join_catalogs.py PROJECT.yaml [NAME[@VERSION]]

The default catalog has what the user subscribed to (`squirrel catalog subscribe FILE`), what SQUIRREL_CATALOGS
names, and what installed packages offer. Where the project has another idea of the same version, the project's counts.
"""

from __future__ import annotations

import sys

from squirrel.catalog import Catalog


def main(project_file: str, wanted: str | None = None) -> None:
    default = Catalog.default()
    project = Catalog.from_files([project_file])
    catalog = default.union(project, on_conflict="theirs")

    for name in catalog.keys():
        for source in catalog[name]:
            of_project = (name, source.version) in project
            print(f"{name}@{source.version}  {source.driver_name}  {'project' if of_project else 'default'}")
    for source in project.subtract(default).values():
        print(f"new: {source.identifier}")
    if wanted:
        name, _, version = wanted.partition("@")
        for sample in catalog[name, int(version or -1)].get_driver().get_iter().take(1):
            print(sample)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
