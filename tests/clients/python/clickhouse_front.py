"""ClickHouse's own engine (chdb) behind its HTTP interface, as far as sinks use it.

Says its port on the first line, and ends with its input. With
`/fail?next=before|after|silent` the next insert is refused before it is done, or done and answered with 500, or
done and not answered at all.
"""

import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb import session



class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None
    lock = threading.Lock()
    fault = None

    def log_message(self, *_):
        pass

    def answer(self, status, body, code=None):
        self.send_response(status)
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        url = urlsplit(self.path)
        fields = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if url.path == "/fail":
            Front.fault = fields["next"]
            return self.answer(200, b"")
        statement = fields.pop("query")
        fault = None
        if statement.startswith("INSERT"):
            fault, Front.fault = Front.fault, None
            head, form = statement.rsplit(" FORMAT ", 1)
            settings = ", ".join(f"{name} = '{value}'" for name, value in fields.items() if name != "wait_end_of_query")
            statement = f"{head} SETTINGS {settings} FORMAT {form}\n{body.decode()}"
        if fault == "before":
            return self.answer(503, b"down")
        try:
            with Front.lock:
                result = bytes(Front.engine.query(statement, "JSONEachRow").bytes())
        except Exception as why:  # noqa: BLE001: the engine raises what it has
            text = str(why)
            code = re.search(r"Code: (\d+)", text)
            return self.answer(500, text.encode(), code and code.group(1))
        if fault == "after":
            return self.answer(500, b"gone")
        if fault == "silent":
            self.close_connection = True
            self.connection.close()
            return None
        return self.answer(200, result)


def main():
    with tempfile.TemporaryDirectory() as folder:
        Front.engine = session.Session(folder)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
        server.shutdown()
        Front.engine.close()


main()
