"""What is wrong with a job before its handler is entered, or with a handler before any job comes."""

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


class UnfitHandler(TypeError):  # noqa: N818  named by what it says of the function
    """No job can call this function; the text is the rule it breaks, ``task`` the name it is registered under."""

    task = ""
