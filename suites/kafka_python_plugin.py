"""A pytest plugin that lets kafka-python's tests use a broker that runs already."""

import sys
import types


class ExternalService:
    """A broker that somebody else starts and stops."""

    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def close(self):
        pass

    stop = close


class SpawnedService:
    def __init__(self, *_):
        raise RuntimeError("this test starts a broker of its own")


service = types.ModuleType("test.service")
service.ExternalService = ExternalService
service.SpawnedService = SpawnedService
sys.modules["test.service"] = service
