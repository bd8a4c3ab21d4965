"""A stand-in for a server: it passes its standard streams to `tests.requirements.serve`, and lives as long as that."""

import os
import socket
import sys

near = socket.socket(socket.AF_UNIX)
near.connect(sys.argv[1])
socket.send_fds(near, [sys.argv[2].encode()], [0, 1, 2])
os.close(0)
os.close(1)
near.recv(1)
