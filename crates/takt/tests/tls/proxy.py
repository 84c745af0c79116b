"""TLS for a test, before a server that has none. `proxy.py FOLDER [PORT]`: makes an authority and a certificate for
127.0.0.1 in FOLDER (openssl), prints its own port, and hands everything to PORT until its input ends. Without PORT it
answers `200` to each request, and prints its first line. At 127.0.0.2 it shows the authority's certificate as its own."""

import os
import socket
import ssl
import subprocess
import sys
import threading

folder, target = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
openssl("req", "-x509", *new, "-subj", "/CN=Test authority", "-keyout", "authority.key", "-out", "authority.pem")
with open(os.path.join(folder, "extensions"), "w") as file:
    file.write("basicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1\n")
openssl("req", "-new", *new[:-2], "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
openssl("x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-days", "2",
        "-extfile", "extensions", "-out", "server.pem")


def context(name):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key"))
    return made


contexts = {"127.0.0.1": context("server"), "127.0.0.2": context("authority")}


def pass_on(source, sink):
    try:
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        sink.close()


def answer(stream):
    request = b""
    while b"\r\n\r\n" not in request:
        part = stream.recv(65536)
        if not part:
            return
        request += part
    head, body = request.split(b"\r\n\r\n", 1)
    length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))[15:])
    while len(body) < length:
        body += stream.recv(65536)
    print(head.split(b"\r\n")[0].decode(), flush=True)
    stream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    stream.close()


def serve(plain):
    try:
        stream = contexts[plain.getsockname()[0]].wrap_socket(plain, server_side=True)
    except OSError:
        return
    if target is None:
        return answer(stream)
    behind = socket.create_connection(("127.0.0.1", target))
    threading.Thread(target=pass_on, args=(behind, stream), daemon=True).start()
    pass_on(stream, behind)


def accept(listener):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
for each in [listener, socket.create_server(("127.0.0.2", port))]:
    threading.Thread(target=accept, args=(each,), daemon=True).start()
print(port, flush=True)
sys.stdin.read()
