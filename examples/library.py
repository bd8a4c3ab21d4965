"""Resources, a template with completion, and a prompt: what a server offers besides tools.

$ python examples/library.py
$ trio-mcp read examples/library.py book://novels/emma
"""

import trio

from trio_mcp import Client, McpError, ResourceNotFound, Server, types

BOOKS = {
    "novels": {"emma": "Emma Woodhouse, handsome, clever, and rich …", "ulysses": "Stately, plump Buck Mulligan …"},
    "poems": {"raven": "Once upon a midnight dreary …"},
}

server = Server("library", version="1.0.0")


@server.resource("library://shelves", mime_type="application/json")
async def shelves() -> dict[str, list[str]]:
    """All shelves and the books on them."""
    return {shelf: sorted(books) for shelf, books in BOOKS.items()}


@server.resource("book://{shelf}/{title}", mime_type="text/plain")
async def book(shelf: str, title: str) -> str:
    """The text of a book."""
    try:
        return BOOKS[shelf][title]
    except KeyError:
        raise ResourceNotFound(f"{shelf}/{title}") from None


@server.completion(resource="book://{shelf}/{title}", argument="shelf")
async def complete_shelf(typed: str) -> list[str]:
    """Complete the name of a shelf."""
    return [shelf for shelf in BOOKS if shelf.startswith(typed)]


@server.prompt
async def review(title: str, stars: int = 5) -> str:
    """Ask for a review of a book.

    Args:
        title: The book's title.
        stars: How many stars it should get.
    """
    return f"Write a review of {title} that gives it {stars} stars."


async def main() -> None:
    async with Client(server) as client:
        async for resource in client.iter_resources():
            print("resource", resource.uri)
        async for template in client.iter_resource_templates():
            print("template", template.uri_template)
        for uri in ("library://shelves", "book://poems/raven"):
            print(uri, "is", (await client.read_resource(uri)).text)
        try:
            await client.read_resource("book://poems/emma")
        except McpError as exc:
            print(f"refused: {exc}")

        reference = types.ResourceTemplateReference(uri="book://{shelf}/{title}")
        print("completed", (await client.complete(reference, "shelf", "n")).completion.values)

        prompt = await client.get_prompt("review", {"title": "Emma", "stars": "4"})
        for message in prompt.messages:
            print(f"{message.role}: {message.text}")


if __name__ == "__main__":
    trio.run(main)
