"""Ray's exceptions, by name."""


class RayError(Exception):
    """Any of them."""


class GetTimeoutError(RayError):
    """Something has not come in time."""
