"""State of a task that is read before the task comes."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from .batch import CACHED_MAX
from .types import Key, read_key

Scan = Callable[[str, Any], Awaitable[dict[str, Any]]]
"""Asks for entries of a table behind a place, or behind the last page; None for the beginning."""


class Ahead:
    """Entries by table and key, and how far each table is read."""

    def __init__(self, tables: Iterable[str]):
        self.entries: dict[tuple[str, Key], Any] = {}
        self._places: dict[str, Any] = dict.fromkeys(tables)

    async def read(self, scan: Scan) -> None:
        """Reads all of it, or the changes since. Entries that do not fit are read when they are asked for."""
        for table, place in self._places.items():
            after = place
            while True:
                page = await scan(table, after)
                self.entries.update(((table, read_key(entry["key"])), entry["value"]) for entry in page["entries"])
                self.entries.update(((table, read_key(key)), None) for key in page["deleted"])
                if len(self.entries) > CACHED_MAX:
                    self.entries.clear()
                    self._places.clear()
                    return
                after = page["next"]
                if after is None:
                    break
            self._places[table] = page["place"]
