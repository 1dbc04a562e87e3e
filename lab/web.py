"""The program in the pods: a real HTTP server that ends gracefully.

Run as a script (`python -I -S web.py`), without any other module, so that it starts in a moment. It listens
on `PORT`; every path answers 200, with the text of `SAYS`. After SIGTERM it accepts no more connections,
finishes requests under way, closes idle connections and ends, as a Spring Boot server with
`server.shutdown=graceful`.
"""

import os
import signal
import socket
import threading
from contextlib import suppress
from types import FrameType

_OPEN_REQUESTS_TIMEOUT_SECONDS = 5.0
_BODY = os.environ.get("SAYS", "hi").encode() + b"\n"
_ANSWER_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n" % len(_BODY)


class _Server:
    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("", port), backlog=256)
        self._changed = threading.Condition()
        self._idle: set[socket.socket] = set()
        self._open = 0
        self._ending = False

    def serve(self) -> None:
        """Answer until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop_accepting)
        while not self._ending:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            with self._changed:
                self._open += 1
            threading.Thread(target=self._serve_connection, args=(connection,), daemon=True).start()
        with self._changed:
            for connection in self._idle:
                with suppress(OSError):  # its caller may have left
                    connection.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._open, _OPEN_REQUESTS_TIMEOUT_SECONDS)

    def _stop_accepting(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signals call it
        self._ending = True
        self._listener.close()  # accept() ends with an error then

    def _serve_connection(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rest = b""
            while not self._ending:
                with self._changed:
                    self._idle.add(connection)
                while b"\r\n\r\n" not in rest:
                    data = connection.recv(65536)
                    if not data:
                        return
                    rest += data
                with self._changed:
                    self._idle.discard(connection)
                _, _, rest = rest.partition(b"\r\n\r\n")  # requests here have no body
                ending = b"Connection: close\r\n" if self._ending else b""
                connection.sendall(_ANSWER_HEAD + ending + b"\r\n" + _BODY)
        except OSError:
            pass  # the caller is gone
        finally:
            with self._changed:
                self._idle.discard(connection)
                self._open -= 1
                self._changed.notify_all()
            connection.close()


if __name__ == "__main__":
    _Server(int(os.environ["PORT"])).serve()
