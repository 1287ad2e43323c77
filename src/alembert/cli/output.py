"""Where commands write for people: a console that leaves a closed pipe to the one place that handles it."""

from rich.console import Console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would end the process with code 1, which is our code for a bug.
        raise BrokenPipeError


def console() -> Console:
    """Make a console for stdout that prints texts as they are: no markup, no colours on numbers and paths."""
    return _Console(highlight=False, markup=False)
