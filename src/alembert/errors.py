"""Errors that a user can correct, and the exit codes of interruptions.

Every message is one or two sentences for a person: what is wrong, what was found, what was expected, what to do.
The command line prints ``error: <message>`` and exits with code 2; anything that is not a `UserError` is a bug.
A message never quotes the text of a user's document.
"""


class UserError(Exception):
    """Something outside the program is wrong, and the message says how to correct it."""


class BadSetting(UserError):
    """A configuration value is outside what can work."""


class BadFile(UserError):
    """A file or folder is missing, damaged, or of another kind than expected."""


class AlreadyDone(BadFile):
    """The very result that was asked for is there and complete; a command ends well without doing anything."""


class UnsupportedTokenizer(BadFile):
    """The tokenizer is sound, and of a kind that alembert does not have."""


class BadInput(UserError):
    """A text or record cannot be used as it is."""


class FolderBusy(UserError):
    """Another process is writing the same folder."""


class Interrupted(Exception):
    """A signal ended the work, and nothing is lost; `exit_code` is what a shell expects (130, 143)."""

    def __init__(self, sentence: str, signal: int) -> None:
        super().__init__(sentence)
        self.exit_code = 128 + signal


class MissingExtra(UserError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str, otherwise: str = "") -> None:
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed. "
            f"Install it with: pip install 'alembert[{extra}]'{'. ' if otherwise else ''}{otherwise}"
        )
