"""``python -m tests.requirements.serve ADDRESS``: a process for each server of a topic, forked where all is loaded.

A client sends the name of the topic's module and the standard streams to serve on. The connection is closed
when the server has ended. This process ends with its standard input, and says on its output when it is ready.
"""

import gc
import os
import select
import signal
import socket
import sys

import trio_mcp.stdio.server  # noqa: F401 - loaded before the forks
from tests.requirements.model import Topic, topics


def serve(near: socket.socket, found: dict[str, Topic]) -> None:
    """Act as the server that the other end asks for."""
    name, streams, _, _ = socket.recv_fds(near, 1000, 3)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    server = found[name.decode()].server
    assert server is not None
    server().run()


def main(address: str) -> None:
    """Fork for each connection, until the input ends."""
    found = {topic.module: topic for topic in topics()}
    for topic in found.values():
        if topic.server is not None:
            topic.server()  # loads what it is made of, so that no fork has to
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(100)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks are never waited for
    gc.freeze()  # what was loaded is never copied for a collection
    print("ready", flush=True)
    while 0 not in (ready := select.select([0, listener], [], [])[0]):
        assert ready
        near, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            serve(near, found)
            os._exit(0)  # to tear down all that was loaded takes longer than most scenarios
        near.close()


if __name__ == "__main__":
    main(sys.argv[1])
