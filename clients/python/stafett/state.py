"""State of one key, as a handler sees it."""

from typing import TYPE_CHECKING, Any

from .types import Emit, Key

if TYPE_CHECKING:
    from .batch import Batch


class State:
    """Entries of one key by table, and its timers. What a handler changes is stored with the commit of its batch.

    `state["open"]` is the entry in table `open`, or None. To change a value that was read, set it again.
    """

    __slots__ = ("_batch", "key")

    def __init__(self, batch: "Batch", key: Key | None):
        self._batch = batch
        self.key = key

    def _key(self) -> Key:
        if self.key is None:
            raise ValueError("a record without a key has no state")
        return self.key

    def __getitem__(self, table: str) -> Any:
        return self._batch.value(table, self._key())

    def __setitem__(self, table: str, value: Any) -> None:
        self._batch.put(table, self._key(), value)

    def __delitem__(self, table: str) -> None:
        self._batch.put(table, self._key(), None)

    def get(self, table: str, default: Any = None) -> Any:
        """Returns the entry in a table, or the default if there is none."""
        value = self[table]
        return default if value is None else value

    def set_timer(self, due: int, name: Key = "") -> None:
        """Sets a timer, in ms since 1970. It fires when the time of the task has reached it."""
        self._batch.set_timer(self._key(), name, due)

    def clear_timer(self, name: Key = "") -> None:
        """Clears a timer."""
        self._batch.set_timer(self._key(), name, None)

    async def emit(self, emit: Emit) -> None:
        """Stores a result at once, before the commit of its batch, in an app with `guarantee="at-least-once"`. After a
        crash it is stored again with the record that it comes from."""
        await self._batch.emit(emit)

    async def of(self, key: Key) -> "State":
        """Returns the state of another key, which has to be one of the same task."""
        await self._batch.load([key])
        return State(self._batch, key)
