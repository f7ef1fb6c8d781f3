"""Loops of asyncio and uvloop, and what is awaited in them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import accelrt
from kinds import KIND

Awaitable = accelrt.Event | accelrt.Stream | accelrt.HostCall[object]
Run = Callable[[Coroutine[Any, Any, None]], None]


def new_uvloop() -> asyncio.AbstractEventLoop:
    """Make a loop of uvloop, if that is installed."""
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return loop


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_uvloop}


def stream() -> accelrt.Stream:
    return accelrt.Stream(f"{KIND}:0", dedicated=True)


def event_of(work: accelrt.Stream) -> Awaitable:
    return work.record_event()


def stream_of(work: accelrt.Stream) -> Awaitable:
    return work


def handle_of(work: accelrt.Stream) -> Awaitable:
    return work.launch_host(int)


AWAITABLES = [event_of, stream_of, handle_of]


async def wait_for(awaitable: Awaitable) -> None:
    await awaitable
