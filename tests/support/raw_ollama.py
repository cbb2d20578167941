"""An upstream that is given the bare connection of one request, for what no well-behaved server does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]
"""Gets the connection after the request's head, and the head."""


@asynccontextmanager
async def raw_ollama(path: str, play: Play) -> AsyncIterator[str]:
    """Serve requests whose target begins with `path` by `play`, and everything else with 404; gives the URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.split(b" ", 2)[1].startswith(path.encode()):
                await play(reader, writer, head)
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
