"""What a reload would do, before anything is done."""

import hypothesis
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from backends.engine.config import EngineConfig
from backends.fake import FakeModel
from backends.remote.config import RemoteConfig
from edge.config import EdgeConfig
from gateway.config import ServerConfig, Settings
from gateway.limits.prices import Price
from gateway.reload import LIVE, LIVE_SERVER, file_stamps, plan_reload
from gateway.routing.config import BreakerConfig, Member, RouteConfig

A, B, C = FakeModel(), FakeModel(slots=2), FakeModel(slots=3)


def settings(models=None, **sections) -> Settings:
    server = ServerConfig(**sections.pop("server", {}))
    return Settings(server=server, models={"a": A} if models is None else models, **sections)


def test_same_configuration_is_an_empty_plan():
    plan = plan_reload(settings(), settings())
    assert plan.is_empty
    assert plan.report() == {"added": (), "changed": (), "removed": (), "sections": (), "restart": ()}


def test_models_are_added_changed_and_removed():
    plan = plan_reload(settings({"a": A, "b": B, "c": C}), settings({"c": B, "d": A, "a": A}))
    assert (plan.added, plan.changed, plan.removed) == (("d",), ("c",), ("b",))
    assert list(plan.settings.models) == ["c", "d", "a"]
    assert not plan.is_empty


def test_model_of_another_engine_has_changed():
    assert plan_reload(settings(), settings({"a": RemoteConfig(url="http://x")})).changed == ("a",)


def test_stale_model_is_built_anew_but_only_if_it_stays():
    assert plan_reload(settings(), settings(), {"a"}).changed == ("a",)
    plan = plan_reload(settings({"a": A, "b": B}), settings({"a": A}), {"b"})
    assert (plan.changed, plan.removed) == ((), ("b",))


@pytest.mark.parametrize(
    ("change", "section"),
    [
        ({"routes": {"r": RouteConfig(deployments=(Member(model="a"),))}}, "routes"),
        ({"breaker": BreakerConfig(min_calls=5)}, "breaker"),
        ({"prices": {"a": Price(input_per_mtok=1)}}, "prices"),
        ({"api_key_digests": frozenset({b"x" * 32})}, "api keys"),
        ({"admin_key_digests": frozenset({b"x" * 32})}, "admin keys"),
    ],
)
def test_section_that_is_live_is_applied(change, section):
    wanted = settings(**change)
    plan = plan_reload(settings(), wanted)
    assert (plan.sections, plan.restart) == ((section,), ())
    assert plan.settings == wanted


def test_what_needs_a_restart_stays_and_is_named_every_time():
    current = settings(server={"port": 1, "drain_timeout_s": 5})
    wanted = settings({"b": B}, server={"port": 2, "workers": 3, "drain_timeout_s": 9})
    wanted = replace(wanted, store=replace(wanted.store, path="/elsewhere"))
    plan = plan_reload(current, wanted)
    assert plan.restart == ("server.port", "server.workers", "store")
    assert plan.sections == ("server",)
    assert (plan.settings.server.port, plan.settings.server.workers, plan.settings.store.path) == (1, 1, "")
    assert (plan.settings.server.drain_timeout_s, list(plan.settings.models)) == (9, ["b"])
    again = plan_reload(plan.settings, wanted)
    assert again.is_empty
    assert again.restart == plan.restart


def test_every_live_field_exists():
    assert set(Settings.__struct_fields__) >= LIVE
    assert set(ServerConfig.__struct_fields__) >= LIVE_SERVER


def test_report_holds_no_secret_and_is_json():
    wanted = settings({"a": RemoteConfig(url="http://x", headers={"x-token": "secret"})})
    assert b"secret" not in msgspec.json.encode(plan_reload(settings(), wanted).report())


models = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([A, B, C]))


@hypothesis.settings(deadline=None)
@given(models, models, st.sets(st.sampled_from("abcdef")))
def test_plan_leads_from_any_models_to_any_others(before, after, stale):
    plan = plan_reload(settings(before), settings(after), stale)
    kept = set(before) - set(plan.removed) - set(plan.changed)
    assert kept | set(plan.added) | set(plan.changed) == set(after)
    assert all(before[name] == after[name] for name in kept)
    assert plan.settings.models == after
    assert plan_reload(plan.settings, settings(after)).is_empty


def test_replaced_file_has_another_stamp(tmp_path):
    key, model = tmp_path / "key", tmp_path / "tiny.gguf"
    key.write_text("one")
    model.write_bytes(b"GGUF")
    models = {
        "r": RemoteConfig(url="http://x", api_key_file=str(key)),
        "e": EdgeConfig(path=str(model)),
        "f": A,
        "gone": EdgeConfig(path=str(tmp_path / "gone")),
    }
    before = file_stamps(models)
    assert before == file_stamps(models)
    new = tmp_path / "new"
    new.write_text("two")
    new.replace(key)
    after = file_stamps(models)
    assert {name for name in models if before[name] != after[name]} == {"r"}


def test_replaced_file_in_a_folder_gives_the_folder_another_stamp(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"one")
    models = {"f": EngineConfig(path=str(folder))}
    before = file_stamps(models)
    assert before == file_stamps(models)
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"two")
    assert file_stamps(models) != before
