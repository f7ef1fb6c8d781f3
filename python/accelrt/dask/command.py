"""`dask accelrt-worker ADDRESS`: a worker process for each device of this machine."""

import json
from typing import Any

import click
from distributed.cli import dask_spec

from accelrt.dask.cluster import Workers


def _numbers(_context: click.Context, _option: click.Parameter, given: str) -> list[int] | None:
    return [int(number) for number in given.split(",")] if given else None


@click.command("accelrt-worker")
@click.argument("address", required=False)
@click.option("--scheduler-file", type=click.Path(), help="what tells the scheduler's address")
@click.option("--kind", help="the kind of the devices (default: the accelerator's)")
@click.option("--devices", callback=_numbers, help="their numbers, as 0,2 (default: all)")
@click.option("--device-memory", help="what a worker takes of its device, as 2GiB")
@click.option("--host-memory", help="what it keeps in host memory before it writes to disk")
@click.option("--nthreads", type=int, default=1, help="tasks that run beside each other")
@click.option("--local-directory", type=click.Path(), help="where values go on disk")
def main(
    address: str | None,
    kind: str | None,
    devices: list[int] | None,
    device_memory: str | None,
    host_memory: str | None,
    **options: Any,
) -> None:
    """Start a worker process for each device, for the scheduler at ADDRESS."""
    try:
        workers = Workers(kind, devices, device_memory, host_memory)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    spec = {
        device: {"cls": "distributed.Nanny", "opts": workers.options(device, options)}
        for device in workers.devices
    }
    dask_spec.main.callback([address] if address else [], json.dumps(spec), "")  # type: ignore[misc]
