"""Plug-ins: packages that bring drivers and sources, found by their entry point in the group ``squirrel``.

    # pyproject.toml of the package
    [project.entry-points.squirrel]
    my_package = "my_package.plugin"

    # my_package/plugin.py
    from squirrel.framework.plugins.hookimpl import hookimpl

    @hookimpl
    def squirrel_drivers():
        return [MyDriver]

    @hookimpl
    def squirrel_sources():
        return [(CatalogKey("my-data", 1), Source("my_driver", driver_kwargs={"url": "..."}))]

Plug-ins are loaded once a process, when the first driver or catalog of plug-ins is asked for.
"""

PLUGGY_HOOKGROUP = "squirrel"
