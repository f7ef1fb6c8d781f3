"""Values of untrusted files, as short texts."""

_MOST_CHARACTERS = 80
# Longer numbers take long to write, and Python refuses to.
_MOST_BITS = 1 << 10


def shown(value: object) -> str:
    """Return a value as a text for people; of containers other than small tuples the type.

    >>> shown("word"), shown(7), shown((0, 1)), shown({})
    ('word', '7', '(0, 1)', 'a dict')
    """
    if isinstance(value, str):
        return value[:_MOST_CHARACTERS]
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple | list) and len(value) <= 2:  # noqa: PLR2004  a pair
        return f"({', '.join(map(_plain, value))})"
    return f"a {type(value).__name__}"


def _plain(value: object) -> str:
    is_small = isinstance(value, int) and value.bit_length() <= _MOST_BITS
    return str(value) if is_small else f"a {type(value).__name__}"
