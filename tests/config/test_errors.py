from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pronk.config.errors import explain_validation_error, nearest


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Oven(Strict):
    heat: Annotated[int, Field(gt=0)] | Literal["auto"] = "auto"
    mode: Literal["grill", "fan"] = "fan"

    @model_validator(mode="after")
    def _no_cold_grill(self):
        if self.mode == "grill" and self.heat == 1:
            raise ValueError("mode (grill) needs more than heat (1)")
        return self


class Timer(Strict):
    minutes: float = 5.0
    bell: bool | None = None


class Kitchen(Strict):
    oven: Oven = Oven()
    timer: Timer = Timer()


def explained(tree):
    with pytest.raises(ValidationError) as caught:
        Kitchen.model_validate(tree)
    message = explain_validation_error(caught.value, Kitchen)
    assert len(message.splitlines()) == 1
    return message


def test_the_nearest_word_is_offered_and_a_far_one_is_not():
    assert nearest("gril", ["grill", "fan"]) == " (did you mean 'grill'?)"
    assert nearest("xyzzy", ["grill", "fan"]) == ""
    assert nearest("x", []) == ""


def test_an_unknown_key_is_matched_in_its_own_section_first():
    assert explained({"oven": {"head": 3}}) == "unknown key oven.head (did you mean 'oven.heat'?)"


def test_an_unknown_key_is_found_in_another_section():
    assert explained({"oven": {"minutes": 3}}).endswith("(did you mean 'timer.minutes'?)")
    assert explained({"bell": 3}).endswith("(did you mean 'timer.bell'?)")


def test_an_unknown_key_like_none_is_told_the_valid_ones():
    assert explained({"oven": {"xyzzy": 3}}) == "unknown key oven.xyzzy; valid here: heat, mode"
    assert explained({"xyzzy": 3}) == "unknown key xyzzy; valid here: oven, timer"


def test_a_choice_that_is_none_lists_the_choices():
    message = explained({"oven": {"mode": "gril"}})
    assert message == "oven.mode: 'gril' is not one of grill, fan (did you mean 'grill'?)"


def test_a_value_of_the_wrong_kind_names_key_value_and_default():
    message = explained({"timer": {"minutes": "soon"}})
    assert message.startswith("timer.minutes must be ")
    assert ", got 'soon'" in message
    assert message.endswith("(default: 5.0)")


def test_a_union_is_one_mistake_not_one_per_branch():
    message = explained({"oven": {"heat": "very"}})
    assert message.startswith("oven.heat must be ")
    assert ", got 'very'" in message
    assert "auto" in message
    assert "more" not in message


def test_a_section_that_is_a_value_is_told_to_have_keys():
    assert explained({"oven": 3}) == "oven: expected keys below it, got 3; write oven.<key>=value"


def test_a_rule_between_keys_speaks_for_itself():
    assert explained({"oven": {"mode": "grill", "heat": 1}}) == "oven: mode (grill) needs more than heat (1)"


def test_further_mistakes_are_counted():
    tree = {"oven": {"heat": -1, "mode": "x"}, "timer": {"minutes": "y"}, "z": 1}
    assert explained(tree).endswith("(and 3 more)")
