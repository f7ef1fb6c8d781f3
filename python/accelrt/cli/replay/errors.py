"""The error of an unusable trace."""


class TraceError(Exception):
    """A file that cannot be replayed, and why."""
