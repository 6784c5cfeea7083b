"""Apps on Stafett: jobs that read stored topics, keep state by key, and pass results on.

An `App` has handlers, plain async functions of a record and the state of its key. `App.run` is a worker of it;
`MemoryApp` runs it in a test, without a broker.
"""

from .app import App
from .memory import MemoryApp
from .state import State
from .types import Emit, Key, Record, Refused, Reject, Timer

__all__ = ["App", "Emit", "Key", "MemoryApp", "Record", "Refused", "Reject", "State", "Timer"]
