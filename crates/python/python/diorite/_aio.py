"""Direct transfers for asyncio.

The event loop watches the queue's descriptors; no thread is started. A cancelled transfer still runs to its end, and its memory is kept until then.
"""

import asyncio

from . import _diorite


class AsyncQueue:
    """Many direct transfers in flight from an event loop, on ``file`` or any other file of diorite.

    A transfer waits while ``depth`` transfers are in flight, or while its range of the file is locked. Offsets, lengths and memory must meet
    ``file.alignment``; ``file.buffer(n)`` returns such memory.
    """

    def __init__(self, file=None, depth=32):
        self._core = _diorite.AsyncCore(file, depth)
        self._loop = None
        self._futures = {}

    def _watch(self):
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._unwatch()
            for descriptor in self._core.filenos():
                loop.add_reader(descriptor, self._step)
            self._loop = loop
        return loop

    def _unwatch(self):
        if self._loop is not None and not self._loop.is_closed():
            for descriptor in self._core.filenos():
                self._loop.remove_reader(descriptor)
        self._loop = None

    def _step(self):
        for future, end in self._core.step():
            if future.done():
                continue
            if isinstance(end, BaseException):
                future.set_exception(end)
            else:
                future.set_result(end)

    async def _run(self, reads, buffer, offset, file):
        future = self._watch().create_future()
        number, nbytes = self._core.start(reads, buffer, offset, future, file)
        if nbytes is not None:
            return nbytes
        self._futures[number] = future
        try:
            return await future
        except asyncio.CancelledError:
            if not self.closed:
                self._core.cancel(number)
            raise
        finally:
            del self._futures[number]

    async def read(self, buffer, offset, *, file=None):
        """Fill ``buffer`` from ``offset``; returns the number of bytes, fewer only at the end of the file."""
        return await self._run(True, buffer, offset, file)

    async def write(self, buffer, offset, *, file=None):
        """Write all of ``buffer`` at ``offset``; returns the number of bytes."""
        return await self._run(False, buffer, offset, file)

    @property
    def depth(self):
        """The maximum number of transfers in flight."""
        return self._core.depth

    @property
    def in_flight(self):
        """Transfers submitted and not yet complete."""
        return self._core.in_flight

    @property
    def closed(self):
        """Whether the queue was closed."""
        return self._core.closed

    def _forget(self):
        """Fail the awaited transfers, and stop watching the queue."""
        self._unwatch()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(ValueError("I/O operation on closed queue"))

    def close(self):
        """Wait for the transfers in flight, and close the queue. Awaited transfers fail with ``ValueError``."""
        self._forget()
        self._core.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        self.close()


class AsyncFile:
    """A file for asyncio. Transfers go through an ``AsyncQueue``, other calls through the event loop's threads.

    ``file`` is the result of ``open(..., buffering=0, direct=True)``; closing the ``AsyncFile`` closes it.
    """

    def __init__(self, file, depth=32):
        self._file = file
        self._queue = AsyncQueue(file, depth)

    @property
    def file(self):
        """The file."""
        return self._file

    @property
    def queue(self):
        """The queue."""
        return self._queue

    def buffer(self, size):
        """A ``Buffer`` with the alignment of the file."""
        return self._file.buffer(size)

    async def readinto_at(self, buffer, offset):
        """Fill ``buffer`` from ``offset``; returns the number of bytes."""
        return await self._queue.read(buffer, offset)

    async def pread(self, size, offset):
        """Read at ``offset`` into a new ``bytes`` object, which costs one copy."""
        buffer = self._file.buffer(size)
        got = await self._queue.read(buffer, offset)
        return bytes(buffer[:got])

    async def pwrite(self, buffer, offset):
        """Write all of ``buffer`` at ``offset``; returns the number of bytes."""
        return await self._queue.write(buffer, offset)

    async def _in_thread(self, call, *arguments):
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)

    async def fsync(self):
        """Make data and attributes durable."""
        await self._in_thread(self._file.fsync)

    async def fdatasync(self):
        """Make the data durable, and the metadata needed to read it."""
        await self._in_thread(self._file.fdatasync)

    async def truncate(self, size):
        """Set the size."""
        return await self._in_thread(self._file.truncate, size)

    async def close(self):
        """Wait for the transfers in flight, and close the queue and the file."""
        self._queue._forget()
        await self._in_thread(self._queue._core.close)
        await self._in_thread(self._file.close)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()
