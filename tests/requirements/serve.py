"""``python -m tests.requirements.serve TOPIC``: the server of a topic, on standard input and output."""

import importlib
import sys

if __name__ == "__main__":
    importlib.import_module(f"tests.requirements.rows.{sys.argv[1]}").topic.server().run()
