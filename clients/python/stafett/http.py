"""HTTP/1.1 with JSON over a few kept connections: all that a worker needs, without a package."""

import asyncio
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from .types import Refused

BODY_BYTES_MAX = 256 << 20


class Client:
    """Requests to one server."""

    def __init__(self, server: str, token: str | None = None):
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a server is a URL such as http://127.0.0.1:7070, not {server!r}")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname
        self._port = parts.port or (443 if self._tls else 80)
        self._token = token
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Sends a request, and returns the answer. Raises `Refused`, or `OSError` if the outcome is not known."""
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}:{self._port}", f"Content-Length: {len(content)}"]
        if body is not None:
            lines.append("Content-Type: application/json")
        if self._token:
            lines.append(f"Authorization: Bearer {self._token}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header or a path has no line breaks")
        request = "\r\n".join(lines).encode() + b"\r\n\r\n" + content
        reader, writer = await self._connection()
        try:
            writer.write(request)
            await writer.drain()
            status, fields, answer = await read_answer(reader)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            writer.close()
            raise ConnectionError(f"the answer to {method} {path} was cut: {error}") from error
        except BaseException:
            writer.close()
            raise
        if fields.get("connection", "").lower() == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        try:
            shown = json.loads(answer) if answer else {}
        except ValueError as error:
            raise ConnectionError(f"{method} {path} was not answered with JSON") from error
        if status >= 400:
            raise Refused(status, shown if isinstance(shown, dict) else {})
        return shown

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Reads a response with a length or in chunks."""
    first = (await reader.readuntil(b"\r\n")).split(b" ", 2)
    status = int(first[1])
    fields: dict[str, str] = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.strip().lower()] = value.strip()
    if fields.get("transfer-encoding", "").lower() != "chunked":
        length = int(fields.get("content-length", "0"))
        if length > BODY_BYTES_MAX:
            raise ValueError("the answer is too large")
        return status, fields, await reader.readexactly(length)
    body = bytearray()
    while length := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        if len(body) + length > BODY_BYTES_MAX:
            raise ValueError("the answer is too large")
        body += (await reader.readexactly(length + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return status, fields, bytes(body)
