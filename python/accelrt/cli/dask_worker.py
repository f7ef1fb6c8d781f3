"""`dask accelrt-worker ADDRESS`: a worker process for each device of this machine."""

import json
from typing import Any

import click
import dask
from distributed.cli import dask_spec

from accelrt.dask.cluster import Workers


def _numbers(_context: click.Context, _option: click.Parameter, given: str) -> list[int] | None:
    try:
        return [int(number) for number in given.split(",")] if given else None
    except ValueError:
        message = f"{given!r} is no list of numbers, as 0,2"
        raise click.BadParameter(message) from None


@click.command("accelrt-worker")
@click.argument("address", required=False)
@click.option("--scheduler-file", type=click.Path(), help="what tells the scheduler's address")
@click.option("--kind", help="the kind of the devices (default: the accelerator's)")
@click.option("--devices", callback=_numbers, help="their numbers, as 0,2 (default: all)")
@click.option("--device-memory", help="what a worker takes of its device, as 2GiB")
@click.option("--host-memory", help="what it keeps in host memory before it writes to disk")
@click.option(
    "--nthreads", type=click.IntRange(1), default=1, help="tasks that run beside each other"
)
@click.option("--local-directory", type=click.Path(), help="where values go on disk")
def main(
    address: str | None,
    kind: str | None,
    devices: list[int] | None,
    device_memory: str | None,
    host_memory: str | None,
    **options: Any,  # noqa: ANN401  as click has them
) -> None:
    """Start a worker process for each device, for the scheduler at ADDRESS."""
    known = address or options["scheduler_file"] or dask.config.get("scheduler-address", None)
    if not known:
        message = "no scheduler: give its ADDRESS or --scheduler-file"
        raise click.UsageError(message)
    try:
        workers = Workers(kind, devices, device_memory, host_memory)
        spec = {
            number: {"cls": "distributed.Nanny", "opts": workers.options(device, options)}
            for number, device in enumerate(workers.devices)
        }
    except (RuntimeError, ValueError) as error:  # the first of a kind that is not there
        raise click.UsageError(str(error)) from error
    dask_spec.main.callback([address] if address else [], json.dumps(spec), "")  # type: ignore[misc]
