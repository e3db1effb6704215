"""Where a learner may listen, what an actor shows, and that no token is ever seen."""

import socket

import pytest
from through_grpc import make_certificate

from pronk.config import load_config, resolve
from pronk.transport.security import (
    Credentials,
    actor_credentials,
    check_gateway,
    learner_credentials,
    read_token,
    same_token,
    split_address,
)
from pronk.types import UserError


def gateway(*overrides):
    return load_config("cartpole", list(overrides)).gateway


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv("PRONK_TOKEN", raising=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:5050", "127.9.9.9:1", '"[::1]:5050"'])
def test_this_machine_needs_nothing(address):
    assert learner_credentials(gateway(f"gateway.address={address}")) == (Credentials(), [])


@pytest.mark.parametrize("address", ["0.0.0.0:5050", "10.0.0.1:5050", "example.org:5050", '"[::]:5050"'])
def test_any_other_address_needs_tls_and_a_token(address, made, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    here = f"gateway.address={address}"
    tls = [f"gateway.certificate={made.certificate}", f"gateway.private_key={made.private_key}"]
    token = f"gateway.token_file={tmp_path / 'token'}"
    for some, lacking in [([], "TLS.*and.*token"), (tls, "token"), ([token], "TLS")]:
        with pytest.raises(UserError, match=rf"needs .*{lacking}.*gateway.insecure=true"):
            learner_credentials(gateway(here, *some))
    shown, warnings = learner_credentials(gateway(here, *tls, token))
    assert (shown.token, shown.tls, warnings) == ("secret", True, [])
    _, warnings = learner_credentials(gateway(here, "gateway.insecure=true"))
    assert len(warnings) == 1
    assert "insecure" in warnings[0]


def test_the_environment_may_hold_the_token(monkeypatch, tmp_path):
    monkeypatch.setenv("PRONK_TOKEN", "from the environment")
    assert read_token(None, "gateway.token_file") == "from the environment"
    (tmp_path / "token").write_text("  from the file\n")
    assert read_token(str(tmp_path / "token"), "gateway.token_file") == "from the file"


@pytest.mark.parametrize("content", ["", "two\nlines", "ünï", "x" * 2000])
def test_what_is_no_token_is_refused_without_showing_it(content, tmp_path):
    (tmp_path / "token").write_text(content)
    with pytest.raises(UserError, match=r"gateway\.token_file") as error:
        read_token(str(tmp_path / "token"), "gateway.token_file")
    assert not content or content not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gateway\.certificate: cannot read .*nothing\.pem: No such file"):
        learner_credentials(
            gateway(
                "gateway.address=127.0.0.1:0",
                f"gateway.certificate={tmp_path}/nothing.pem",
                f"gateway.private_key={tmp_path}/nothing.pem",
            )
        )


@pytest.mark.parametrize("key", ["certificate", "private_key"])
def test_certificate_and_key_belong_together(key, made):
    with pytest.raises(UserError, match="belong together"):
        learner_credentials(gateway("gateway.address=127.0.0.1:0", f"gateway.{key}={made.certificate}"))


def test_a_used_address_is_said_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UserError, match=r"gateway\.address: cannot listen on 127\.0\.0\.1:\d+: Address already"):
            check_gateway(resolve(load_config("cartpole", [f"gateway.address=127.0.0.1:{taken.getsockname()[1]}"])))


@pytest.mark.parametrize("address", ["", "5050", "host", "host:", ":5050", "host:x", "host:70000", "::1:5050"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UserError, match="HOST:PORT"):
        split_address(address)


def test_an_actor_speaks_tls_to_other_machines_unless_told_otherwise(made):
    assert not actor_credentials("127.0.0.1:5050").tls
    assert actor_credentials("127.0.0.1:5050", ca=made.certificate).tls
    assert actor_credentials("10.0.0.1:5050").tls
    assert not actor_credentials("10.0.0.1:5050", insecure=True).tls
    with pytest.raises(UserError, match="give only one of the two"):
        actor_credentials("10.0.0.1:5050", ca=made.certificate, insecure=True)
    with pytest.raises(UserError, match="a port is required"):
        actor_credentials("10.0.0.1:0")


def test_tokens_are_compared_whole():
    assert same_token("secret", "secret")
    assert same_token(b"secret", "secret")
    for other in ("", "secre", "secrets", "Secret", "s\udcffcret", None):
        assert not same_token(other, "secret")


def test_no_representation_shows_a_secret():
    assert "secret" not in repr(Credentials("secret", b"secret", b"secret", b"secret"))
