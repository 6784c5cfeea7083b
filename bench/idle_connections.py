#!/usr/bin/env python3
"""The memory of idle connections: many clients connect, ask for ApiVersions once, and say nothing more."""

import argparse
import socket
import struct

import common


def connect(address):
    connection = socket.create_connection(address)
    body = struct.pack(">hhih4s", 18, 0, 1, 4, b"idle")
    connection.sendall(struct.pack(">i", len(body)) + body)
    return connection


def read_answer(connection):
    (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    connection.recv(length, socket.MSG_WAITALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="stafett-sync")
    parser.add_argument("--connections", type=int, default=5000)
    options = parser.parse_args()
    common.many_files()
    broker = common.Broker(options.subject, common.work_folder())
    host, port = broker.address.rsplit(":", 1)
    # What a first connection brings about once (a pool, a buffer) is not counted to the others.
    first = connect((host, int(port)))
    read_answer(first)
    before = broker.resident_mib()
    connections = []
    for _ in range(options.connections):
        connections.append(connect((host, int(port))))
        read_answer(connections[-1])
    with_them = broker.resident_mib()
    print(common.machine())
    each = (with_them - before) * 1024 / options.connections
    print(
        f"{options.connections} idle connections: {before:.1f} MiB before, {with_them:.1f} MiB with them, "
        f"{each:.2f} KiB each ({options.subject}, durability {common.durability(options.subject)})"
    )
    for connection in connections:
        connection.close()


main()
