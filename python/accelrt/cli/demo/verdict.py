"""The reasons that overlap did not win, from the measurements of the two runs."""

import os

from accelrt.cli.demo.job import Job, Outcome

# Two runs differ by this much anyway.
_WON = 1.15

# A stage above this share leaves too little work to overlap.
_NEARLY_ALL = 0.85


def lines(job: Job, lane_count: int, serial: Outcome, overlapped: Outcome) -> list[str]:
    """Return the reasons, with their measurements; no line when overlap won."""
    if serial.seconds >= _WON * overlapped.seconds:
        return []
    return [f"It should be more: {reason}." for reason in _reasons(job, lane_count, serial)]


def _reasons(job: Job, lane_count: int, serial: Outcome) -> list[str]:
    found = []
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        found.append("this process may use one core only, and nothing can run beside it")
    if lane_count == 1:
        chunks = f"{job.chunk_count} chunk" + ("s" if job.chunk_count > 1 else "")
        found.append(f"one chunk was in flight at a time (the file has {chunks})")
    elif job.chunk_count < 2 * lane_count:
        found.append(f"the file has {job.chunk_count} chunks only; smaller ones overlap more")
    parts_ms = {"reading and checking on this thread": serial.host_ms, **serial.stages_ms}
    part, longest_ms = max(parts_ms.items(), key=lambda item: item[1])
    if longest_ms > _NEARLY_ALL * serial.seconds * 1e3:
        found.append(f"{part} took {longest_ms:.1f} of {serial.seconds * 1e3:.1f} ms one by one")
    if not found:
        load = f"{os.getloadavg()[0]:.1f} threads wanted {cores} cores in the last minute"
        found.append(f"something else used the cores meanwhile ({load})")
    return found
