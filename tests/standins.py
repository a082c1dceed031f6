"""Stand-ins for the sinks of alerts: servers on loopback that record requests and misbehave on purpose."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Behaviour = Callable[[BaseHTTPRequestHandler, int], None]
# seconds between two checks of a server whether it is shut down
NOTICED = 0.02


@dataclass
class Standin:
    """A server and the requests that it received, in order; `behave` answers a request by its number."""

    url: str = ""
    behave: Behaviour = lambda handler, number: answer(handler, 200)
    paths: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)


def answer(handler: BaseHTTPRequestHandler, status: int, text: str = "ok", **headers: str) -> None:
    """Send a complete answer."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(text.encode())))
    handler.end_headers()
    handler.wfile.write(text.encode())


def hang(handler: BaseHTTPRequestHandler, number: int) -> None:
    """Never answer."""
    handler.server.standin.stopped.wait(60)  # type: ignore[attr-defined]


def trickle(handler: BaseHTTPRequestHandler, number: int) -> None:
    """Answer byte after byte without an end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.standin.stopped.wait(0.2):  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):
            handler.wfile.write(b"x")
            handler.wfile.flush()


def garbage(handler: BaseHTTPRequestHandler, number: int) -> None:
    """Answer with bytes that are not HTTP."""
    handler.wfile.write(b"\x00\x01\x02 220 not http at all\r\n\r\n")
    handler.close_connection = True


def hang_up(handler: BaseHTTPRequestHandler, number: int) -> None:
    """Close the connection in the middle of the header of the answer."""
    handler.wfile.write(b"HTTP/1.1 20")
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@contextlib.contextmanager
def serving(
    behave: Behaviour | None = None, certificate: tuple[Path, Path] | None = None
) -> Iterator[Standin]:
    """Run an HTTP server, or an HTTPS server with a certificate and key."""
    standin = Standin()
    if behave:
        standin.behave = behave

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            standin.paths.append(self.path)
            standin.headers.append(dict(self.headers.items()))
            is_json = self.headers.get_content_type() == "application/json"
            standin.bodies.append(json.loads(body) if is_json else body.decode())
            with contextlib.suppress(OSError):
                standin.behave(self, len(standin.bodies))

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:  # clients that give up
            pass

    server = Server(("127.0.0.1", 0), Handler)
    server.standin = standin  # type: ignore[attr-defined]
    scheme = "http"
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    standin.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(NOTICED,), daemon=True)
    thread.start()
    try:
        yield standin
    finally:
        standin.stopped.set()
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def mail_server(refuses: bool = False) -> Iterator[Standin]:
    """Run an SMTP server that takes mails, or refuses all recipients."""
    standin = Standin()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            def say(text: str) -> None:
                self.wfile.write(text.encode() + b"\r\n")

            say("220 standin")
            for line in iter(self.rfile.readline, b""):
                word = line.decode().split(maxsplit=1)[0].upper() if line.strip() else ""
                if word == "DATA":
                    say("354 go on")
                    lines = []
                    for part in iter(self.rfile.readline, b".\r\n"):
                        lines.append(part.decode())
                    standin.bodies.append("".join(lines))
                    say("250 taken")
                elif word == "QUIT":
                    say("221 bye")
                    return
                elif word == "RCPT" and refuses:
                    say("550 nobody here")
                else:
                    say("250 ok")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(NOTICED,), daemon=True).start()
        standin.url = f"smtp://127.0.0.1:{server.server_address[1]}"
        yield standin
        server.shutdown()


def free_port() -> int:
    """Return a port of loopback that no process listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def certificate(folder: Path, name: str = "127.0.0.1") -> tuple[Path, Path] | None:
    """Return a self-signed (certificate, key); None if openssl is missing."""
    if shutil.which("openssl") is None:
        return None
    files = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-addext", f"subjectAltName=IP:{name}", "-out", str(files[0]), "-keyout", str(files[1])],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return files


ALERTMANAGER = ("prometheus-alertmanager", "alertmanager")


@contextlib.contextmanager
def alertmanager(folder: Path) -> Iterator[str | None]:
    """Run a real Alertmanager on loopback and return its address; None if none is installed."""
    program = next(filter(None, map(shutil.which, ALERTMANAGER)), None)
    if program is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    port = free_port()
    process = subprocess.Popen(
        [program, f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
