import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fmtkit.core.errors import TemplateError, UnknownNameError
from fmtkit.formats import typenames
from fmtkit.rendering import template_sources

TOKENIZER = Path(__file__).parents[2] / "shared" / "data" / "goldens" / "tokenizer"


def test_every_shipped_file_has_a_name_and_every_name_a_file():
    folder = Path(__file__).parents[1] / "templates"
    assert tuple(sorted(path.stem for path in folder.glob("*.jinja"))) == template_sources.SHIPPED


@pytest.mark.parametrize("name", template_sources.SHIPPED)
def test_a_family_is_ours_with_an_empty_bos(name):
    found = template_sources.find_family(name)
    assert found.name == name
    assert found.trusted
    assert found.special_tokens == {"bos_token": ""}


def test_a_models_template_is_trls_where_trl_ships_one():
    pytest.importorskip("trl")
    assert template_sources.find_model_template("llama3").name == "trl:llama3"
    assert template_sources.find_model_template("chatml").name == "chatml"
    assert template_sources.find_family("llama3").name == "llama3"


@pytest.mark.parametrize("name", sorted(template_sources.ALIASES))
def test_every_alias_leads_somewhere(name):
    if template_sources.ALIASES[name].startswith("trl:"):
        pytest.importorskip("trl")
    assert template_sources.is_known(name)
    assert template_sources.find_model_template(name).source


def test_training_variants_stand_beside_trls_templates():
    pytest.importorskip("trl")
    found = template_sources.find_model_template("qwen3")
    assert found.training is not None
    assert "generation" in found.training
    assert template_sources.find_model_template("trl:qwen3_training").source == found.training


def test_a_misspelled_name_gets_the_near_one():
    with pytest.raises(UnknownNameError, match="did you mean 'chatml'"):
        template_sources.find_model_template("chatlm")
    assert not template_sources.is_known("chatlm")


def test_a_file_is_found_by_its_path_and_not_trusted(tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text("{{ messages[0].content }}", encoding="utf-8")
    found = template_sources.find_family(str(file))
    assert (found.source, found.trusted) == ("{{ messages[0].content }}", False)
    with pytest.raises(TemplateError, match="cannot be read"):
        template_sources.find_family(str(tmp_path / "absent.jinja"))


def test_a_copy_of_one_of_trls_templates_is_recognised(tmp_path):
    pytest.importorskip("trl")
    source = template_sources.find_model_template("qwen3").source
    file = tmp_path / "mine.jinja"
    file.write_text(source, encoding="utf-8")
    found = template_sources.find_family(str(file))
    assert found.trusted
    assert found.training is not None


def test_a_copy_of_one_of_ours_is_trusted_and_a_changed_one_is_not(tmp_path):
    """A run's tokenizer has the template of its type: it is ours to the letter."""
    for name in template_sources.SHIPPED:
        source = template_sources.find_family(name).source
        assert template_sources.recognised("template", source, {}).trusted
        assert not template_sources.recognised("template", source + " ", {}).trusted


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    if not TOKENIZER.is_dir():
        pytest.skip("the tokenizer of ../shared is not here")
    (tmp_path / "tokenizer.json").write_bytes((TOKENIZER / "tokenizer.json").read_bytes())
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokens))
    return tmp_path


def test_a_tokenizers_own_template_comes_with_its_special_tokens(tokenizer):
    with pytest.raises(template_sources.tokens.TokenizerError, match="no chat template"):
        template_sources.find_model_template("tokenizer_default", tokenizer=tokenizer)
    (tokenizer / "chat_template.jinja").write_text("{{ bos_token }}x")
    found = template_sources.find_model_template("tokenizer_default", tokenizer=tokenizer)
    assert (found.source, found.trusted) == ("{{ bos_token }}x", False)
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_named_template_takes_the_tokenizers_special_tokens(tokenizer):
    found = template_sources.find_model_template("chatml", tokenizer=tokenizer)
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_the_tokenizers_own_template_needs_a_tokenizer():
    with pytest.raises(TemplateError, match="give --tokenizer"):
        template_sources.find_model_template("tokenizer_default")


def test_without_trl_its_templates_are_an_error_that_says_what_to_install():
    program = """
import sys
sys.meta_path.insert(0, type("No", (), {"find_spec": staticmethod(
    lambda name, *a: (_ for _ in ()).throw(ModuleNotFoundError(name)) if name == "trl" else None)}))
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *a: None if name == "trl" else found(name, *a)
from fmtkit.rendering import template_sources
from fmtkit.core.errors import DependencyError
print(template_sources.find_family("llama3").name, "glm4_moe" in template_sources.names())
for name in ("glm4_moe", "aya", "trl:qwen3"):
    try:
        template_sources.find_model_template(name)
    except DependencyError as error:
        print("fmtkit[train]" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["llama3", "False", "True", "True", "True"], done.stderr


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("qwen2.5", "qwen2_5"),
        ("Qwen-2.5", "qwen2_5"),
        ("phi4", "phi_4"),
        ("phi-3.5", "phi3_5"),
        ("Llama-3.1", "llama3_1"),
        ("gpt-oss", "gptoss"),
        ("ChatML", "chatml"),
        ("chatlm", "chatml"),
        ("gmma3", "gemma3"),
        ("mistral-v3", "mistral_v3"),
        *((name, None) for name in ("llama2", "llama-2", "llama3.3", "vicuna", "phi", "")),
    ],
)
def test_a_name_in_another_spelling_is_meant_and_another_model_is_not(name, meant):
    assert template_sources.near_name(name) == meant


def test_an_unknown_model_is_said_to_have_its_template_in_its_tokenizer():
    with pytest.raises(UnknownNameError) as caught:
        template_sources.find_model_template("llama2")
    assert "did you mean" not in str(caught.value)
    assert "is in its tokenizer (tokenizer_default)" in str(caught.value)


def test_gemma_2_has_the_template_of_gemma():
    for find in (template_sources.find_model_template, template_sources.find_family):
        assert find("gemma2").source == find("gemma").source


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("qwen2.5.intel", "did you mean 'qwen2_5.intel'?"),
        ("Qwen3.intel", "did you mean 'qwen3.intel'?"),
        ("phi4.intel", "write intel, with --chat-template tokenizer_default --tokenizer ORG/MODEL"),
        (
            "phi_4.intel",
            "write intel, with --chat-template tokenizer_default --tokenizer ORG/MODEL",
        ),
    ],
)
def test_a_type_with_a_misspelt_template_says_how_it_is_written(name, advice):
    with pytest.raises(UnknownNameError, match=re.escape(advice)):
        typenames.read(name)
