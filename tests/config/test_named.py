import sys
from collections import OrderedDict

import pytest

from pronk.config.named import find, load
from pronk.types import UserError

TABLE = {"ordered": "collections:OrderedDict", "absent": "no_such_module_at_all:Thing"}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported until the test ends."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def write(name, content):
        (tmp_path / f"{name}.py").write_text(content)
        names.append(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_a_name_of_the_table_is_found_and_only_it_is_imported():
    assert find("kind", "ordered", TABLE) is OrderedDict


def test_an_address_is_found_without_the_table():
    assert find("kind", "collections:OrderedDict", {}) is OrderedDict


def test_an_unknown_name_is_told_what_there_is():
    with pytest.raises(UserError, match=r"no kind 'orderd' \(did you mean 'ordered'\?\); there are ordered, absent"):
        find("kind", "orderd", TABLE)


@pytest.mark.parametrize("address", ["no_such_module:Thing", "no_such_module.deep:Thing", "os.no_such_part:Thing"])
def test_a_missing_module_is_the_users_mistake(address):
    with pytest.raises(UserError, match=f"no module '{address.partition(':')[0]}'"):
        load(address)


@pytest.mark.parametrize("address", [":", ":Thing", ".relative:Thing", "..:Thing"])
def test_what_cannot_be_a_module_is_the_users_mistake(address):
    with pytest.raises(UserError):
        load(address)


@pytest.mark.parametrize(("attribute", "hint"), [("OrderedDic", "did you mean 'OrderedDict'?"), ("", ""), ("x.y", "")])
def test_a_missing_attribute_is_the_users_mistake(attribute, hint):
    with pytest.raises(UserError) as caught:
        load(f"collections:{attribute}")
    assert f"has no {attribute!r}" in str(caught.value)
    assert hint in str(caught.value)


def test_a_module_that_fails_shows_its_own_error(module):
    module("fails_on_import", "raise RuntimeError('my own mistake')")
    with pytest.raises(RuntimeError, match="my own mistake"):
        load("fails_on_import:Thing")


def test_a_dependency_that_is_missing_is_not_taken_for_the_module(module):
    module("lacks_something", "import no_such_dependency")
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load("lacks_something:Thing")
