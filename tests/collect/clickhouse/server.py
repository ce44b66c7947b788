"""The HTTP interface of ClickHouse as far as a sink uses it: the engine is ClickHouse itself (chdb), in this process.

Usage: server.py FOLDER. It prints the port, and keeps its tables in the folder. POST / with `query` inserts the body, which may
be gzip; all other parameters are settings. POST /sql runs the body, and answers with what it selects, as JSON lines.
"""

import gzip
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb import session

DATABASE = session.Session(sys.argv[1])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        text = body.decode()
        parameters = dict(parse_qsl(url.query))
        if url.path != "/sql":
            insert, data_format = parameters.pop("query").split(" FORMAT ")
            settings = ", ".join(f"{name} = '{value}'" for name, value in parameters.items())
            text = f"{insert} SETTINGS {settings} FORMAT {data_format}\n{text}"
        try:
            status, answer = 200, DATABASE.query(text, "JSONEachRow").bytes()
        except Exception as error:  # whatever ClickHouse says is the answer
            status, answer = 400, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


SERVER = HTTPServer(("127.0.0.1", 0), Handler)
print(SERVER.server_address[1], flush=True)
SERVER.serve_forever()
