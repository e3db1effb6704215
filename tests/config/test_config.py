import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pronk.config import Config, load_config, preset_names, validate
from pronk.config.plain_yaml import dump, parse
from pronk.types import UserError


def value_at(config, path):
    node = config
    for key in path.split("."):
        node = node[key] if isinstance(node, dict) else getattr(node, key)
    return node


def mistake(source, *overrides):
    with pytest.raises(UserError) as caught:
        load_config(source, list(overrides))
    message = str(caught.value)
    assert len(message.splitlines()) == 1, message
    return message


# ---- presets and the round trip


def test_there_are_presets_and_each_says_what_it_is():
    assert {"cartpole", "catch"} <= set(preset_names())
    assert all(load_config(name).description for name in preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_survives_being_written_and_read(name, tmp_path):
    config = load_config(name)
    file = tmp_path / "copy.yaml"
    file.write_text(config.to_yaml())
    assert load_config(file) == config
    assert load_config(str(file), ["run.seed=9"]) == load_config(name, ["run.seed=9"])


texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=8)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
trees = st.recursive(
    plain | st.sampled_from(["1e6", "null", "on", "12:30", "a: b", "- a", "#", "a\nb\n"]),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(texts, part, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    return tmp_path_factory.mktemp("round") / "trip.yaml"


@settings(max_examples=100, deadline=None)
@given(kwargs=st.dictionaries(texts, trees, max_size=3), description=texts, rate=st.floats(1e-12, 1e6))
def test_any_kwargs_and_texts_survive_the_round_trip(one_file, kwargs, description, rate):
    tree = {"env": {"kwargs": kwargs}, "description": description, "optimiser": {"learning_rate": rate}}
    config = validate(tree)
    one_file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(one_file) == config


def test_a_gymnasium_id_or_an_own_address_gives_the_defaults_for_it():
    for name in ("Acrobot-v1", "some_module:Thing", "some_module:Some/Thing-v0"):
        assert load_config(name) == Config().replace({"env.id": name})


# ---- overrides


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("optimiser.learning_rate=1e-3", 0.001),
        ("optimiser.learning_rate=2.5E-4", 0.00025),
        ("optimiser.learning_rate=1", 1.0),
        ("run.total_steps=1e6", 1_000_000),
        ("run.total_steps=2.5e6", 2_500_000),
        ("run.total_steps=1_000_000", 1_000_000),
        ("run.stop_return=-200", -200.0),
        ("run.stop_return=null", None),
        ("loss.rho_bar=null", None),
        ("network.hidden=[128, 32]", [128, 32]),
        ("network.hidden=[]", []),
        ("network.hidden=[1e2]", [100]),
        ("network.separate_value=true", True),
        ("network.separate_value=false", False),
        ("network.core=none", "none"),
        ("actors.count=auto", "auto"),
        ("actors.count=3", 3),
        ("env.kwargs={rows: 5}", {"rows": 5}),
        ("env.kwargs.rows=5", 5),
        ("env.kwargs.deep.deeper=5", 5),
        ("env.kwargs.rate=1e-3", 0.001),
        ("env.kwargs={rate: 1e-3}", {"rate": 0.001}),
        ("env.kwargs.clock=12:30", "12:30"),
        ("env.kwargs.text='1e6'", "1e6"),
        ("env.kwargs.formula=a=b", "a=b"),
        ("network.name=my.module:Thing", "my.module:Thing"),
        ("learner.device=cuda:0", "cuda:0"),
        ("description=", ""),
    ],
)
def test_an_override_is_read_as_its_type(override, value):
    got = value_at(load_config("catch", [override]), override.partition("=")[0])
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("transport=local", "transport.name=local"),
        ("env=Acrobot-v1", "env.id=Acrobot-v1"),
        ("optimiser=rmsprop_tf", "optimiser.name=rmsprop_tf"),
        ("network=a:b", "network.name=a:b"),
        ("loss=a:b", "loss.name=a:b"),
    ],
)
def test_a_section_can_be_named_by_its_main_key(short, long):
    assert load_config("catch", [short]) == load_config("catch", [long]) != load_config("catch")


def test_the_last_override_wins_and_the_others_stay():
    config = load_config("catch", ["run.seed=2", "env.kwargs.rows=7", "env.kwargs.columns=3", "run.seed=4"])
    assert (config.run.seed, config.env.kwargs) == (4, {"rows": 7, "columns": 3})


def test_an_override_does_not_change_its_preset():
    load_config("catch", ["env.kwargs.rows=7", "network.hidden=[1]"])
    assert load_config("catch").env.kwargs == {}


def test_a_file_reads_numbers_as_an_override_does(tmp_path):
    file = tmp_path / "numbers.yaml"
    file.write_text("run: {total_steps: 1e6}\noptimiser: {learning_rate: 1e-3}\nenv: {kwargs: {gravity: 1e1}}\n")
    config = load_config(file)
    assert (config.run.total_steps, config.optimiser.learning_rate, config.env.kwargs) == (10**6, 1e-3, {"gravity": 10})


@given(st.integers(0, 10**15))
def test_an_integer_reads_the_same_in_every_notation(number):
    assert parse(str(number)) == parse(f"{number}e0") == parse(f"{number:_}") == number


# ---- mistakes


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("run.sead=3", ["run.sead", "'run.seed'"]),
        ("runn.seed=3", ["runn", "'run'"]),
        ("optimizer.learning_rate=1", ["optimizer", "'optimiser'"]),
        ("seed=3", ["seed", "'run.seed'"]),
        ("a.b.c.d=1", ["a", "env, network, loss"]),
        ("run.xyzzy=1", ["run.xyzzy", "total_steps", "seed"]),
        ("network.activation=rellu", ["network.activation", "'rellu'", "relu, tanh", "'relu'"]),
        ("transport=locl", ["transport.name", "'locl'", "'local'"]),
        ("network.core=null", ["network.core", "none, lstm"]),
        ("run.seed=-1", ["run.seed", "-1", "default: 1"]),
        ("run.seed=", ["run.seed", "''", "integer"]),
        ("run.seed=abc", ["run.seed", "'abc'", "integer"]),
        ("run.seed={a: 1}", ["run.seed", "{'a': 1}", "integer"]),
        ("run.seed.deep=1", ["run.seed", "integer"]),
        ("run.seed=true", ["run.seed", "true"]),
        ("actors.count=true", ["actors.count", "true"]),
        ("optimiser.learning_rate=true", ["optimiser.learning_rate", "true"]),
        ("run.total_steps=1.5", ["run.total_steps", "1.5", "integer"]),
        ("run.total_steps=0", ["run.total_steps", "0", "greater than 0"]),
        ("run.total_steps=1e400", ["run.total_steps"]),
        ("run.total_seconds=.inf", ["run.total_seconds", "inf", "finite"]),
        ("run.stop_return=.nan", ["run.stop_return", "nan", "finite"]),
        ("optimiser.learning_rate=fast", ["optimiser.learning_rate", "'fast'", "number", "auto"]),
        ("optimiser.learning_rate=1e400", ["optimiser.learning_rate"]),
        ("optimiser.learning_rate=-1", ["optimiser.learning_rate", "-1"]),
        ("network.separate_value=maybe", ["network.separate_value", "'maybe'", "boolean"]),
        ("network.hidden=32", ["network.hidden", "32", "list", "[64, 64]"]),
        ("network.hidden=[64, -1]", ["network.hidden", "-1"]),
        ("loss.discount=1.1", ["loss.discount", "1.1", "less than or equal to 1"]),
        ("actors.count=autoo", ["actors.count", "'autoo'", "auto"]),
        ("actors.slots=65", ["actors.slots", "65", "64"]),
        ("actors=3", ["actors", "3", "actors.<key>=value"]),
        ("env.kwargs=5", ["env.kwargs", "5", "dictionary"]),
        ("learner.threads=1e12", ["learner.threads", "1000000000000"]),
        ("actors.threads=1e12", ["actors.threads", "1000000000000"]),
        ("actors.count=1e15", ["actors.count", "1000000000000000"]),
        ("run.seed", ["'run.seed'", "section.key=value"]),
        ("=3", ["'=3'", "section.key=value"]),
        ("run.seed=[", ["run.seed", "'['", "YAML"]),
    ],
)
def test_a_wrong_override_is_explained_in_one_line(override, words):
    message = mistake("catch", override)
    assert [word for word in words if word not in message] == [], message


def addresses():
    found = {}
    for section, field in Config.model_fields.items():
        for key in getattr(field.annotation, "model_fields", {}):
            found.setdefault(key, []).append(f"{section}.{key}")
    return found


@pytest.mark.parametrize(("key", "belongs"), addresses().items())
def test_a_key_without_its_section_is_told_where_it_belongs(key, belongs):
    message = mistake("catch", f"{key}=1")
    assert any(repr(address) in message for address in belongs), message


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["learner.batch_size=10", "actors.envs=4"], ["learner.batch_size", "10", "actors.envs", "4", "try"]),
        (["loss.rho_bar=0.5"], ["rho_bar", "0.5", "c_bar", "1"]),
        (["loss.c_bar=null"], ["rho_bar", "1", "c_bar"]),
        (["network.separate_value=true", "network.core=lstm"], ["network.separate_value", "network.core=none"]),
    ],
)
def test_what_cannot_go_together_is_refused(overrides, words):
    message = mistake("catch", *overrides)
    assert [word for word in words if word not in message] == [], message


def test_several_mistakes_are_counted():
    assert mistake("catch", "run.seed=-1", "run.total_steps=-1", "foo=1").endswith("(and 2 more)")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["env:"]),
        (b"# nothing but a comment\n", ["env:"]),
        (b"- 1\n- 2\n", ["env:", "list"]),
        (b"hello\n", ["env:"]),
        (bytes(range(256)), ["cannot read"]),
        ("description: café".encode("latin-1"), ["cannot read", "utf-8"]),
        (b"env: [1,\nfoo: {", ["YAML", "line 2"]),
        (b"env: {id: catch}\n---\nrun: {seed: 2}\n", ["YAML", "line 2"]),
        (b"run: !!python/object/apply:os.getcwd []\n", ["YAML", "os.getcwd"]),
        (b"env: CartPole-v1\n", ["env", "'CartPole-v1'"]),
        (b"env:\nrun: {seed: 3}\n", ["env"]),
        (b"run: {seed: {a: 1}}\n", ["run.seed", "{'a': 1}"]),
        (b"1: 2\n", ["1", "string"]),
    ],
)
def test_a_wrong_file_is_explained_in_one_line(tmp_path, content, words):
    file = tmp_path / "wrong.yaml"
    file.write_bytes(content)
    message = mistake(file)
    assert "wrong.yaml" in message
    assert [word for word in words if word not in message] == [], message
    assert "NoneType" not in message


def test_a_file_that_is_none_is_said(tmp_path):
    assert "no such file" in mistake(tmp_path / "nowhere.yaml")
    (tmp_path / "folder.yaml").mkdir()
    assert "directory" in mistake(tmp_path / "folder.yaml")


@pytest.mark.parametrize(("typo", "right"), [("cartpol", "cartpole"), ("Catch", "catch"), ("cach", "catch")])
def test_a_misspelt_preset_is_recognised(typo, right):
    assert repr(right) in mistake(typo)


def test_what_is_no_preset_at_all_is_told_what_there_is():
    assert "cartpole, catch" in mistake("")
    assert "cartpole, catch" in mistake("xyzzy")


# ---- copies


def test_a_configuration_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="frozen"):
        load_config("catch").run.seed = 3


def test_replacing_makes_a_validated_copy():
    config = load_config("catch")
    assert config.replace({"run.seed": 8}).run.seed == 8
    assert config.run.seed == 1
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        config.replace({"run.seed": -8})


def test_a_file_may_build_on_another(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text("base: cartpole\nactors:\n  unroll_length: 7\n")
    mine, cartpole = load_config(file), load_config("cartpole")
    assert mine == cartpole.replace({"actors.unroll_length": 7})
    assert "base:" not in mine.to_yaml()
    grandchild = tmp_path / "mine.yaml"
    grandchild.write_text(f"base: {file}\nrun:\n  stop_return: null\n")
    assert load_config(grandchild) == mine.replace({"run.stop_return": None})


@pytest.mark.parametrize(
    ("base", "words"), [("cartpol", "cartpole"), ("my.yaml", "leads back"), ("none.yaml", "no such")]
)
def test_a_base_that_cannot_be_is_a_users_mistake(base, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(f"base: {base}\n")
    with pytest.raises(UserError, match=words):
        load_config("my.yaml")


def test_a_resumed_run_forgets_where_it_paused() -> None:
    config = load_config("catch", ["run.pause_steps=1000", "run.total_steps=5000"])
    assert config.without_host().run.pause_steps is None
    assert config.without_host().run.total_steps == 5000


@pytest.mark.parametrize(
    "text", ["\x85", "\u2028", "a\u2029b: ", "é\x85", "\n", "\r", "\t", "\ufeff", "12:30", "010", "1e-3"]
)
def test_any_text_is_read_back_as_it_was_written(text: str) -> None:
    assert parse(dump({text: [text]})) == {text: [text]}
