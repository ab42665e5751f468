"""What ``Handlers.run`` raises before a handler is entered."""

from __future__ import annotations


class UnknownTask(Exception):  # noqa: N818  named by what it says of the job
    """No registered handler has this name; the job fails with the reason ``task-unknown``."""


class InvalidData(Exception):  # noqa: N818  named by what it says of the job
    """The data does not fit the handler's parameters; the job fails with the reason ``data-invalid``."""


class MissingLibrary(ImportError):  # noqa: N818  named by what it says of the installation
    """An enabled module of this package needs a library that is not installed; ``remedy`` is what to run."""

    def __init__(self, requirement: str) -> None:
        self.remedy = f"pip install {requirement}"
        super().__init__(f"needs a library that is not installed; run {self.remedy}")
