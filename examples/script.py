"""A script without async: it starts a server as its child process, and uses it.

$ python examples/script.py
"""

import sys
from pathlib import Path

from trio_mcp import StdioServerParameters
from trio_mcp.blocking import Client

SERVER = Path(__file__).with_name("library.py")


def main() -> None:
    with Client(StdioServerParameters(sys.executable, ["-m", "trio_mcp", "run", str(SERVER)])) as client:
        for resource in client.iter_resources():
            print(f"{resource.uri} is {client.read_resource(resource.uri).text}")
        review = client.get_prompt("review", {"title": "Emma", "stars": "4"})
        print(review.messages[0].text)


if __name__ == "__main__":
    main()
