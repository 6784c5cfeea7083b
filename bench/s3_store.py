"""An S3-compatible store in memory whose puts and gets take their time, for benches: no signatures are checked.

    python3 bench/s3_store.py --put 60,250 --get 30,120

The two numbers are the median and the 99th percentile of a log-normal distribution, in milliseconds. The first line
of the output is the address.
"""

import argparse
import asyncio
import math
import random
import sys
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

OBJECTS = {}
COUNTS = {"PUT": 0, "GET": 0, "DELETE": 0, "LIST": 0}


def delay(spec):
    """A function that draws seconds."""
    if spec == (0, 0):
        return lambda: 0
    median, late = spec
    sigma = math.log(late / median) / 2.326
    return lambda: random.lognormvariate(math.log(median), sigma) / 1000


def listed(prefix, behind):
    names = sorted(name for name in OBJECTS if name.startswith(prefix) and name > behind)[:1000]
    rows = "".join(
        f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag>"
        f"<Size>{len(OBJECTS[name])}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for name in names
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix></Prefix>'
        f"<MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{rows}"
        "</ListBucketResult>"
    ).encode()


async def answer(method, target, body, waits):
    url = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    _, _, name = unquote(url.path).lstrip("/").partition("/")
    if url.path == "/counts":
        return 200, repr(COUNTS).encode()
    if method == "PUT":
        if name:
            await asyncio.sleep(waits["PUT"]())
            OBJECTS[name] = body
            COUNTS["PUT"] += 1
        return 200, b""
    if method == "HEAD":
        return 200, b""
    if method == "DELETE":
        COUNTS["DELETE"] += 1
        OBJECTS.pop(name, None)
        return 204, b""
    if not name:
        COUNTS["LIST"] += 1
        return 200, listed(query.get("prefix", ""), query.get("start-after", ""))
    COUNTS["GET"] += 1
    await asyncio.sleep(waits["GET"]())
    return (200, OBJECTS[name]) if name in OBJECTS else (404, b"<Error><Code>NoSuchKey</Code></Error>")


async def serve(reader, writer, waits):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            method, target, _ = lines[0].split(" ")
            length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
            body = await reader.readexactly(length)
            status, out = await answer(method, target, body, waits)
            writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: {len(out)}\r\n\r\n".encode())
            writer.write(out)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    def pair(text):
        return tuple(float(number) for number in text.split(","))

    parser = argparse.ArgumentParser()
    parser.add_argument("--put", type=pair, default=(0, 0))
    parser.add_argument("--get", type=pair, default=(0, 0))
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    waits = {"PUT": delay(options.put), "GET": delay(options.get)}
    server = await asyncio.start_server(
        lambda reader, writer: serve(reader, writer, waits), "127.0.0.1", options.port, limit=1 << 20
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
