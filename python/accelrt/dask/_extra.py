"""Says what is missing without the extra `dask`, before the other modules need it."""


def _import() -> None:
    try:
        import distributed  # noqa: F401, PLC0415  its error is ours
    except ImportError as error:
        message = "accelrt.dask needs the extra `dask`: pip install 'accelrt[dask]'"
        raise ImportError(message) from error


_import()
