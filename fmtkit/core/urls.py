"""Paths of files and folders on object stores."""

from pathlib import PurePosixPath

from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass


@dataclass(frozen=True)
class ObjectPath:
    """A file or folder on an object store; str() hides credentials in its URL."""

    url: str

    def __str__(self) -> str:
        return public(self.url)

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(f"{self.url.rstrip('/')}/{name}" if self.name else self.url + name)

    @property
    def name(self) -> str:
        """Return the last part of the path; an empty string for the root."""
        return self.url.partition("://")[2].rstrip("/").rpartition("/")[2]

    @property
    def stem(self) -> str:
        """Return the last part of the path without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> "ObjectPath":
        """Return the folder that the path is in."""
        scheme, _, place = self.url.partition("://")
        return ObjectPath(f"{scheme}://{place.rstrip('/').rpartition('/')[0]}")

    def with_name(self, name: str) -> "ObjectPath":
        """Return the path beside this one."""
        return self.parent / name
