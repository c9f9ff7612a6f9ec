"""What can be wrong with a device."""


class DeviceError(Exception):
    """A device is not there, or cannot do what is needed. One sentence for the user."""
