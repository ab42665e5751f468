"""The documentation is complete, its links lead somewhere, and it says what the code says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from platform_worker import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for where in (".", "docs", "deploy", "bench", "examples")
    for path in (ROOT.glob("*.md") if where == "." else (ROOT / where).rglob("*.md"))
    if not {"var", ".work"} & set(path.relative_to(ROOT).parts)
)
ERRORS = [cls for cls in vars(errors).values() if isinstance(cls, type) and cls.__module__ == errors.__name__]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [] == [target for target in targets if not (page.parent / target).exists()]


def test_the_page_of_errors_lists_every_code_with_its_class_exit_code_and_reasons() -> None:
    table = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| (\d) \| (.+) \|$", (ROOT / "docs/ssot/errors.md").read_text("utf-8"), re.M
    )
    documented = {
        (code, cls, int(exit_code), frozenset(re.findall(r"`([\w-]+)`", r))) for code, cls, exit_code, r in table
    }
    assert {(e.code, e.__name__, e.exit_code, e.reasons) for e in ERRORS if e.reasons} == documented


@pytest.mark.parametrize("folder", ["docs/adr", "docs/ssot", "docs/guides"])
def test_every_page_is_in_its_index(folder: str) -> None:
    index = (ROOT / folder / "INDEX.md").read_text("utf-8")
    assert [] == [p.name for p in (ROOT / folder).glob("*.md") if p.name != "INDEX.md" and f"({p.name})" not in index]


def test_every_decision_has_its_four_parts() -> None:
    parts = ["Status", "Context", "Decision", "Consequences"]
    for page in (ROOT / "docs/adr").glob("[0-9]*.md"):
        assert parts == re.findall(r"^## (.+)$", page.read_text("utf-8"), re.M), page.name


def test_the_shipped_settings_are_valid_toml() -> None:
    assert {"app", "worker", "queue", "sqlite"} <= tomllib.loads(
        (ROOT / "config/worker.toml").read_text("utf-8")
    ).keys()
