"""The embedded cpu device: the machine's own cores, really asynchronous, always there.

>>> import accelrt
>>> accelrt.cpu.is_available()
True
"""

from accelrt import _kinds

_kinds.fill(__name__)
