"""Stand-in until the real one lands."""


def prepare_environment() -> None:
    """Set what must be set before torch or OpenVINO load."""
