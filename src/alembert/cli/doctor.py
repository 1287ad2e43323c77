"""`alembert doctor`: what this machine can do, what was chosen and why."""


def doctor() -> None:
    """Show what this machine can do, what was chosen and why."""
