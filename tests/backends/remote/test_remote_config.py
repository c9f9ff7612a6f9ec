"""What a remote model's configuration accepts, and what becomes of its secrets."""

import subprocess
import sys
from pathlib import Path

import pytest

from backends.remote.backend import RemoteBackend
from backends.remote.config import RemoteConfig
from backends.remote.credentials import read_api_key, tls_context

URL = "https://host/v1"


@pytest.mark.parametrize(
    ("url", "base", "root"),
    [
        ("https://host/v1", "https://host/v1", "https://host"),
        ("https://host/v1/", "https://host/v1", "https://host"),
        ("http://host:8000", "http://host:8000/v1", "http://host:8000"),
        ("http://host:8000/", "http://host:8000/v1", "http://host:8000"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", "http://[::1]:8000"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai", "https://host/v1beta/openai"),
    ],
)
def test_the_base_is_taken_as_sdks_take_it(url: str, base: str, root: str) -> None:
    config = RemoteConfig(url=url)
    assert (config.base_url, config.root_url) == (base, root)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"url": "host/v1"}, "url must be like"),
        ({"url": "ftp://host"}, "url must be like"),
        ({"url": "https://user:secret@host"}, "must not hold credentials"),
        ({"url": "https://host/v1?key=secret"}, "no query"),
        ({"api_key_env": "A", "api_key_file": "b"}, "exclude each other"),
        ({"client_key_file": "k"}, "needs client_cert_file"),
        ({"headers": {"a b": "c"}}, "cannot be set"),
        ({"headers": {"Host": "other"}}, "cannot be set"),
        ({"headers": {"x-a": "secret\r\nx: y"}}, "value of x-a"),
        ({"forward_headers": ("Authorization",)}, "never passed on"),
        ({"forward_headers": ("cookie",)}, "never passed on"),
        ({"forward_headers": ("content-length",)}, "never passed on"),
        ({"strip_params": ("messages",)}, "needs messages"),
    ],
)
def test_mistakes_are_named_without_secrets(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        RemoteConfig(**({"url": URL} | fields))
    assert "secret" not in str(caught.value)


def test_the_key_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-file\n")
    assert read_api_key(RemoteConfig(url=URL), {}) == ""
    assert read_api_key(RemoteConfig(url=URL, api_key_env="KEY"), {"KEY": " sk-env "}) == "sk-env"
    assert read_api_key(RemoteConfig(url=URL, api_key_file=str(file)), {}) == "sk-file"


@pytest.mark.parametrize("value", ["", "two words", "sécret", "a\nb"])
def test_what_is_no_key_is_refused_without_repeating_it(value: str) -> None:
    with pytest.raises(ValueError, match="environment variable KEY holds no API key") as caught:
        read_api_key(RemoteConfig(url=URL, api_key_env="KEY"), {"KEY": value})
    assert not value or value not in str(caught.value)


def test_missing_files_are_named() -> None:
    with pytest.raises(ValueError, match="cannot read /nowhere/key"):
        RemoteBackend("m", RemoteConfig(url=URL, api_key_file="/nowhere/key"))
    with pytest.raises(ValueError, match="cannot load the TLS files"):
        tls_context(RemoteConfig(url=URL, ca_file="/nowhere/ca.pem"))


def test_certificates_are_checked_unless_that_is_switched_off() -> None:
    checked, unchecked = tls_context(RemoteConfig(url=URL)), tls_context(RemoteConfig(url=URL, verify_tls=False))
    assert checked.check_hostname
    assert not unchecked.check_hostname
    assert tls_context(RemoteConfig(url="http://host")).get_ca_certs() == []


def test_the_configuration_alone_loads_no_http_client() -> None:
    code = "import sys, backends.remote.config; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
