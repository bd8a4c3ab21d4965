"""A stand-in for a process: it passes its standard streams to a fork of `tests.forks`, which does the work."""

import json
import os
import signal
import socket
import sys

near = socket.socket(socket.AF_UNIX)
near.connect(sys.argv[1])
wanted = {"argv": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until it is known whom they are for
data = json.dumps(wanted).encode() + b"\n"
socket.send_fds(near, [data[:1]], [0, 1, 2])
near.sendall(data[1:])
for stream in (0, 1, 2):
    os.close(stream)
told = near.makefile("rb")
fork = int(told.readline())
for number in signals:
    signal.signal(number, lambda number, frame: os.kill(fork, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
status = int(told.readline())
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
