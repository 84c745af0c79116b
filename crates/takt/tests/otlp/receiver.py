"""A collector that reads what it is sent with OpenTelemetry's own messages, and prints each request
as a line of JSON. Its first line is its port."""

import http.server
import json
import sys

from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

KINDS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/logs": ExportLogsServiceRequest}


def unknown(message):
    """Whether there are fields that OpenTelemetry's messages do not have, at any depth."""
    inner = [value for field, value in message.ListFields() if field.message_type]
    inner = [one for value in inner for one in ([value] if hasattr(value, "ListFields") else value)]
    return len(UnknownFieldSet(message)) > 0 or any(unknown(one) for one in inner)


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = KINDS[self.path]()
        request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
        said = {"path": self.path, "authorization": self.headers.get("authorization")}
        print(json.dumps({**said, "unknown": unknown(request), "request": MessageToDict(request)}), flush=True)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_address[1], flush=True)
server.serve_forever()
