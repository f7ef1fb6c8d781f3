"""Goal: programs that await as users write them: servers, pipelines, and loops that run for long.

Method: what each program did is compared with what it had to do; what it left is counted.
"""

import asyncio

import accelrt
from kinds import KIND
from loops import Run, stream
from processes import output_of


def test_a_hundred_requests_have_streams_of_their_own(run: Run) -> None:
    served = list[tuple[int, int]]()

    async def serve(number: int) -> None:
        with accelrt.Stream(f"{KIND}:0", dedicated=True) as own:
            for step in range(10):
                assert accelrt.accelerator.current_stream() == own
                own.launch_host(served.append, (number, step))
                await own
                assert (number, step) in served

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(serve(number))

    run(main())
    assert sorted(served) == [(number, step) for number in range(100) for step in range(10)]
    assert all(
        [step for other, step in served if other == number] == list(range(10))
        for number in range(100)
    )


def test_a_producer_and_a_consumer_await_each_other(run: Run) -> None:
    journal = list[str]()

    async def produce(queue: "asyncio.Queue[accelrt.Event | None]") -> None:
        work = stream()
        for number in range(30):
            work.launch_host(journal.append, f"produced {number}")
            event = work.record_event()
            await queue.put(event)
            await event
        await queue.put(None)

    async def consume(queue: "asyncio.Queue[accelrt.Event | None]") -> None:
        work, number = stream(), 0
        while (event := await queue.get()) is not None:
            work.wait_event(event)
            await work.launch_host(journal.append, f"consumed {number}")
            number += 1

    async def main() -> None:
        queue = asyncio.Queue["accelrt.Event | None"](1)
        await asyncio.gather(produce(queue), consume(queue))

    run(main())
    for number in range(30):
        produced, consumed = (
            journal.index(f"{word} {number}") for word in ("produced", "consumed")
        )
        assert produced < consumed


MANY = """
    import asyncio
    from pathlib import Path
    import accelrt

    TASKS, AWAITS = 20, 100_000
    awaited = [0]

    def counts() -> tuple[int, int]:
        folders = [Path("/proc/self/fd"), Path("/proc/self/task")]
        return tuple(len(list(folder.iterdir())) for folder in folders)

    def peak_kib() -> int:  # `ru_maxrss` begins with that of the process that started this one
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

    async def serve(count: int) -> None:
        work, other = accelrt.Stream(dedicated=True), accelrt.Stream(dedicated=True)
        for number in range(count):
            call = work.launch_host(int)
            if number % 100 == 0:
                try:
                    await asyncio.wait_for(call, 0)
                except TimeoutError:
                    pass
            elif number % 3 == 0:
                other.wait_stream(work)
                await other
            elif number % 3 == 1:
                await call
            else:
                await work.record_event()
            awaited[0] += 1
        await work

    async def serve_all(count: int) -> None:
        await asyncio.gather(*(serve(count // TASKS) for _ in range(TASKS)))

    async def main() -> None:
        await serve_all(10_000)
        before, least = counts(), peak_kib()
        awaited[0] = 0
        await serve_all(AWAITS)
        after, most = counts(), peak_kib()
        assert awaited == [AWAITS]
        assert before[0] == after[0], (before, after)
        assert after[1] <= before[1] + 3, (before, after)  # the pool of callables may grow
        assert most - least < 2_000, (least, most)

    asyncio.run(main())
"""


def test_a_hundred_thousand_awaits_leave_memory_threads_and_descriptors_as_they_are() -> None:
    assert output_of(MANY) == ""
