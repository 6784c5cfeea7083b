"""DuckDB: each line of the input is a statement (as a JSON text), and gets a line with its rows, or its error.

With `lake ADDRESS PATH` as arguments, the lake whose catalog lies in that PostgreSQL database is attached as `lake`.
"""

import json
import sys

import duckdb

connection = duckdb.connect()
if sys.argv[1:2] == ["lake"]:
    from duckdb_extensions import import_extension

    for name in ["ducklake", "postgres_scanner"]:
        import_extension(name)
        connection.load_extension(name)
    address, path = sys.argv[2:]
    connection.sql(f"ATTACH 'ducklake:postgres:{address}' AS lake (DATA_PATH '{path}')")
print("ready", flush=True)
for line in sys.stdin:
    try:
        found = connection.sql(json.loads(line))
        rows = [dict(zip(found.columns, row)) for row in found.fetchall()] if found else []
        print(json.dumps(rows, default=str), flush=True)
    except duckdb.Error as why:
        print(json.dumps({"error": str(why)}), flush=True)
