"""Without a network nothing waits for the hub: its cache is used, and the reason is said."""

import json
import socket

import pytest

from fmtkit.core import hub_access
from fmtkit.core.errors import OptionError, TokenizerError
from fmtkit.tokenizers import tokens


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name in ("HF_HUB_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                 "all_proxy", "ALL_PROXY"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    hub_access.trouble.cache_clear()
    yield
    hub_access.trouble.cache_clear()


@pytest.fixture
def nobody(monkeypatch) -> str:
    """Point the hub at a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("HF_ENDPOINT", f"http://{address}")
    return address


def test_a_hub_that_refuses_is_found_cut_off(nobody):
    assert hub_access.trouble() == "127.0.0.1: Connection refused"


def test_a_name_that_nobody_knows_is_found_cut_off(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    assert hub_access.trouble().startswith("hub.invalid")


def test_a_hub_that_answers_is_asked(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hub_access.trouble() is None
        assert hub_access.environment(["a/model"]) == {}


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "https_proxy"])
def test_who_is_offline_or_behind_a_proxy_is_not_tried(nobody, name, monkeypatch):
    monkeypatch.setenv(name, "1" if name == "HF_HUB_OFFLINE" else "http://proxy:3128")
    assert hub_access.trouble() is None


def test_the_client_is_offline_inside_alone(nobody):
    constants = pytest.importorskip("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    with hub_access.bounded() as reason:
        assert constants.HF_HUB_OFFLINE is True
        assert reason == "127.0.0.1: Connection refused"
    assert constants.HF_HUB_OFFLINE is before


def test_a_further_process_is_spared_where_it_loads_from_the_hub(nobody, tmp_path):
    assert hub_access.environment([str(tmp_path)]) == {}
    assert hub_access.environment([str(tmp_path), "a/model"]) == {"HF_HUB_OFFLINE": "1"}


def test_a_tokenizer_that_cannot_be_had_says_why(nobody, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        TokenizerError, match=r"did not provide it \(127\.0\.0\.1: Connection refused\)"
    ):
        tokens.load("nobody/nothing")


def test_a_run_says_why_model_or_data_cannot_be_had(nobody, tmp_path, monkeypatch):
    pytest.importorskip("trl")
    import tiny_training as tiny

    from fmtkit.training.config import slices
    from fmtkit.training.data import datasets
    from fmtkit.training.planning import plan as planning

    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    keys = {"base_model": "nobody/nothing", "datasets": [{"path": "nobody/data", "type": "openai"}]}
    plan = planning.plan(keys)
    with pytest.raises(OptionError, match=r"base_model: nobody/nothing: .*Connection refused"):
        tiny.check(plan)
    with pytest.raises(OptionError, match=r"nobody/data: .*cannot be reached \(127\.0\.0\.1"):
        datasets.specs_of(plan.datasets[0], slices.parse_slice("train"))


def test_what_is_cached_is_used_without_asking(nobody, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    from tokenizers import Tokenizer, models

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--a--b"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123", encoding="utf-8")
    Tokenizer(models.WordLevel({"x": 0}, unk_token="x")).save(str(snapshot / "tokenizer.json"))
    (snapshot / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "x"}), encoding="utf-8"
    )
    assert tokens.load("a/b").special_tokens == {"eos_token": "x"}
    assert hub_access.trouble.cache_info().currsize == 0
