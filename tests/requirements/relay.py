"""A server process that hands its standard streams on to a Unix socket, where a script in the test plays the server."""

import os
import select
import socket
import sys

far = socket.socket(socket.AF_UNIX)
far.connect(sys.argv[1])
while True:
    ready, _, _ = select.select([0, far], [], [])
    if 0 in ready:
        data = os.read(0, 65536)
        if not data:
            break
        far.sendall(data)
    if far in ready:
        data = far.recv(65536)
        if not data:
            break
        while data:
            data = data[os.write(1, data) :]
