"""Tests that share a fixture of their module run in one worker; all others are handed out one by one."""

from pathlib import Path

import pytest
from scheduling import group_of, sharing_functions

FILE = """
import pytest

def test_before(): ...

@pytest.fixture(
    scope="module",
    params=[1, 2],
)
def shared(): ...

@pytest.fixture
def built_on_it(shared): ...

def test_direct(tmp_path, shared): ...

def test_through_another(built_on_it): ...

def test_alone(tmp_path): ...

class TestClass:
    def test_method(self, shared): ...
    def test_other_method(self): ...

@pytest.mark.usefixtures("shared")
class TestMarked:
    def test_marked(self): ...
"""
EVERYONE = """
import pytest

@pytest.fixture(scope="module", autouse=True)
def shared(): ...

def test_without_a_word(tmp_path): ...
"""


@pytest.mark.parametrize(
    ("text", "test", "together"),
    [
        (FILE, "test_before", False),
        (FILE, "test_direct", True),
        (FILE, "test_direct[a::b]", True),
        (FILE, "test_through_another[1]", True),
        (FILE, "test_alone", False),
        (FILE, "TestClass::test_method[a::b]", True),
        (FILE, "TestClass::test_other_method", False),
        (FILE, "TestMarked::test_marked", True),
        (EVERYONE, "test_without_a_word", True),
    ],
)
def test_who_shares_a_fixture_of_the_module_stays_together(text: str, test: str, together: bool, tmp_path: Path):
    (tmp_path / "test_it.py").write_text(text)
    sharing_functions.cache_clear()
    assert group_of(f"test_it.py::{test}", tmp_path) == ("test_it.py" if together else f"test_it.py::{test}")


def test_what_is_read_from_the_files_is_what_pytest_collected(request: pytest.FixtureRequest):
    """Of all tests that were collected, by the fixtures that pytest found for each."""
    root = request.config.rootpath
    for item in request.session.items:
        definitions = [each for several in item._fixtureinfo.name2fixturedefs.values() for each in several]
        shares = any(each.scope == "module" for each in definitions)
        file = item.nodeid.partition("::")[0]
        assert group_of(item.nodeid, root) == (file if shares else item.nodeid)
