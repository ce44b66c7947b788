"""An object store that knows the requests of S3 which Tansu makes. What it has outlives the broker.

    store.py ADDRESS PORT
"""

import hashlib
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

objects: dict[str, bytes] = {}
lock = threading.Lock()


def tag(content):
    return f'"{hashlib.md5(content).hexdigest()}"'


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with lock:
            there = objects.get(self.key())
            is_new = self.headers.get("If-None-Match") != "*" or there is None
            expected = self.headers.get("If-Match")
            if not is_new or expected and (there is None or tag(there) != expected):
                return self.answer(412)
            objects[self.key()] = content
        self.answer(200, ETag=tag(content))

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            return self.list(query)
        with lock:
            content = objects.get(self.key())
        if content is None:
            return self.answer(404)
        about = {"ETag": tag(content), "Last-Modified": formatdate(usegmt=True)}
        if self.headers.get("If-None-Match") == about["ETag"]:
            return self.answer(304, **about)
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last) + 1 if last else None]
            about["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            return self.answer(206, part, **about)
        self.answer(200, content, **about)

    do_HEAD = do_GET

    def do_DELETE(self):
        with lock:
            objects.pop(self.key(), None)
        self.answer(204)

    def list(self, query):
        prefix, delimiter, after = (query.get(name, [""])[0] for name in ("prefix", "delimiter", "start-after"))
        found = {}  # XML by name, each once
        with lock:
            for key in sorted(key for key in objects if key.startswith(prefix) and key > after):
                folder, is_below, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                if is_below:
                    name = prefix + folder + delimiter
                    found[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
                else:
                    about = f"<ETag>{escape(tag(objects[key]))}</ETag><Size>{len(objects[key])}</Size>"
                    time = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    found[key] = f"<Contents><Key>{escape(key)}</Key>{time}{about}</Contents>"
        content = "<IsTruncated>false</IsTruncated>" + "".join(found.values())
        self.answer(200, f"<ListBucketResult>{content}</ListBucketResult>".encode())

    def key(self):
        """The path without the bucket."""
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def answer(self, status, content=b"", **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Store).serve_forever()
