"""One file, as a file object."""

from __future__ import annotations

from squirrel.driver.driver import Driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    from squirrel.constants import URL

__all__ = ["FileDriver"]


class FileDriver(Driver):
    """A file at any URL that fsspec knows.

    Args:
        url: path or URL of the file.
        storage_options: of fsspec's file system; a cache is ``{"protocol": "simplecache",
            "target_protocol": "gs", "cache_storage": "/tmp/cache"}``.
        **kwargs: of :class:`Driver`.
    """

    name = "file"

    def __init__(self, url: URL, storage_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.url = url
        self.storage_options = storage_options if storage_options is not None else {}

    def open(self, mode: str = "r", create_if_not_exists: bool = False, **kwargs: Any) -> IO[Any]:
        """The file: ``with driver.open() as file: ...``

        Args:
            mode: as of Python's ``open``.
            create_if_not_exists: make the directories that the file needs.
            **kwargs: of ``fsspec.open``; they go before `storage_options`.
        """
        import fsspec

        options = {**self.storage_options, "auto_mkdir": create_if_not_exists, **kwargs}
        return fsspec.open(str(self.url), mode=mode, **options)  # type: ignore[no-any-return]
