"""What makes a trace unusable."""


class TraceError(Exception):
    """A file that cannot be replayed, and why."""
