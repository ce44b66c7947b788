"""A receiver of OTLP metrics on loopback, which decodes with the official package `opentelemetry-proto`.

    receiver.py DIRECTORY

It writes its port to DIRECTORY/port. DIRECTORY/behaviour says what it does with a request:

    accept          keeps it, and answers 200
    partial         the same, and says that 3 data points are rejected
    lost            keeps it, and closes the connection without an answer
    STATUS          keeps nothing, and answers this status; 503 with Retry-After
    reports STATUS  the same, but accepts tombstones

Each resource that it keeps is a line of DIRECTORY/received: JSON as protobuf defines it. It is there before the answer is sent.
Each request is a line of DIRECTORY/requests: the status, and what was wrong.
"""

import gzip
import json
import pathlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

FOLDER = pathlib.Path(sys.argv[1])
PROTOBUF = "application/x-protobuf"


class Refused(Exception):
    """A request that no receiver may take: status, and why."""


def note(name, what):
    with open(FOLDER / name, "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def decoded(path, headers, body):
    if path != "/v1/metrics":
        raise Refused(404, f"there is nothing at {path}")
    if headers.get("Content-Type") != PROTOBUF:
        raise Refused(415, f"the type is {headers.get('Content-Type')}")
    encoding = headers.get("Content-Encoding", "identity")
    if encoding == "gzip":
        body = gzip.decompress(body)
    elif encoding != "identity":
        raise Refused(415, f"the encoding is {encoding}")
    request = ExportMetricsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise Refused(400, str(error)) from error
    # What the definitions do not know would be dropped in silence.
    request.DiscardUnknownFields()
    if request.ByteSize() != len(body):
        raise Refused(400, "there are fields that the official definitions do not have")
    if not request.resource_metrics:
        raise Refused(400, "there is nothing in it")
    return request


def is_report(request):
    names = [m.name for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return "weir.report.seq" in names


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            request = decoded(self.path, self.headers, body)
            status, why = self.judge(request)
        except Refused as refused:
            status, why = refused.args
            request = None
        if status in (200, None):
            for resource in request.resource_metrics:
                note("received", MessageToDict(resource, preserving_proto_field_name=True))
        note("requests", {"status": status, "why": why, "bytes": len(body)})
        if status is None:
            self.close_connection = True
            return
        response = ExportMetricsServiceResponse()
        if status == 200 and why:
            response.partial_success.rejected_data_points = 3
            response.partial_success.error_message = why
        answer = response.SerializeToString() if status == 200 else why.encode()
        self.send_response(status)
        self.send_header("Content-Type", PROTOBUF if status == 200 else "text/plain")
        self.send_header("Content-Length", str(len(answer)))
        if status == 503:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(answer)

    def judge(self, request):
        words = (FOLDER / "behaviour").read_text().split()
        if words == ["accept"]:
            return 200, ""
        if words == ["partial"]:
            return 200, "no room for three points"
        if words == ["lost"]:
            return None, ""
        if words[0] == "reports" and not is_report(request):
            return 200, ""
        return int(words[-1]), "as told"

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
(FOLDER / "port.new").write_text(str(server.server_port))
(FOLDER / "port.new").rename(FOLDER / "port")
server.serve_forever()
