"""A process that is the server of a topic: ``python -m tests.requirements.serve MODULE``, run in a fork."""

import os
import sys

from tests.requirements.model import topics

SERVERS = {topic.module: topic.server for topic in topics()}

if __name__ == "__main__":
    server = SERVERS[sys.argv[1]]
    assert server is not None
    server().run()
    os._exit(0)  # to tear down all that was loaded takes longer than most scenarios
