"""The requests of tools that manage RabbitMQ, in their order: python management_tools.py HOST:PORT

Each row of the table (tests/clients/odd/management_tools.tsv) is the tool, a request, the status that the tool takes for success, and
the fields of the answer that it reads: an answer may have more. `<number>`, `<text>` and `<flag>` stand for any value of that kind.
In a list, each element of the row has one in the answer.
"""

import json
import sys
from http.client import HTTPConnection
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "odd/management_tools.tsv"
KINDS = {"<number>": (int, float), "<text>": str, "<flag>": bool}


def ask(address, request):
    """Sends a request as these tools do, with a connection of its own."""
    method, path, *body = request.split(" ", 2)
    connection = HTTPConnection(address, timeout=60)
    headers = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
    connection.request(method, path, body[0] if body else None, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return str(answer.status), answer.headers, text


def has(found, wanted):
    if isinstance(wanted, str) and wanted in KINDS:
        is_flag = isinstance(found, bool)
        return isinstance(found, KINDS[wanted]) and is_flag == (wanted == "<flag>")
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(name in found and has(found[name], value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(has(one, value) for one in found) for value in wanted)
    # Numbers stay numbers: 5000 is no 5000.0 and no "5000".
    return type(found) is type(wanted) and found == wanted


def main():
    rows = [line.split("\t") for line in TABLE.read_text().splitlines()[1:]]
    for tool, request, status, *fields in rows:
        found, headers, body = ask(sys.argv[1], request)
        assert found == status, f"{tool}: {request}: {found} {body}"
        if fields:
            wanted = json.loads(fields[0])
            assert headers["content-type"].startswith("application/json"), f"{tool}: {request}: {headers}"
            assert has(json.loads(body), wanted), f"{tool}: {request}: {body}\n  lacks {wanted}"
    print(len(rows))


main()
