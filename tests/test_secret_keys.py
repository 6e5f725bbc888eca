"""What looks like a secret is found with its kind, never shown, and looked for in linear time."""

import base64
import gzip
import json
import random
import re
import string
from pathlib import Path

import pytest
import runs
from fixture_cases import FIXTURES

import fmtkit
from fmtkit.core.credentials import public
from fmtkit.core.errors import OptionError
from fmtkit.core.secret_keys import MARKS, hidden, secrets_in
from fmtkit.inspection.inspection import run
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.reports import html
from fmtkit.training.online import samples_page

MIB = 1 << 20
LETTERS = string.ascii_letters + string.digits


def drawn(size: int, among: str = LETTERS, seed: int = 1) -> str:
    """Draw the secret part: a key that is written out in a test would be found in the repository."""
    return "".join(random.Random(seed).choices(among, k=size - 2)) + "7Q"


SECRETS = {
    "API key": ("sk-ant-api03-", drawn(95)),
    "GitHub token": ("ghp_", drawn(36)),
    "GitLab token": ("glpat-", drawn(20)),
    "Hugging Face token": ("hf_", drawn(34)),
    "AWS key": ("AKIA", drawn(16, string.ascii_uppercase + string.digits)),
    "Google key": ("AIza", drawn(35)),
    "Groq key": ("gsk_", drawn(52)),
    "SendGrid key": ("SG.", f"{drawn(22)}.{drawn(43)}"),
    "Vault token": ("hvs.", drawn(90)),
    "DigitalOcean token": ("dop_v1_", "".join(random.Random(3).choices("0123456789abcdef", k=64))),
    "Google OAuth secret": ("GOCSPX-", drawn(28)),
    "Slack token": ("xoxb-", f"{drawn(12)}-{drawn(24)}"),
    "Stripe key": ("sk_live_", drawn(24)),
    "npm token": ("npm_", drawn(36)),
    "PyPI token": ("pypi-", f"AgEI{drawn(80)}"),
    "JSON web token": ("eyJ", f"{drawn(20)}.eyJ{drawn(40)}.{drawn(43)}"),
    "bearer token": ("Authorization: Bearer ", drawn(30)),
    "private key": ("-----BEGIN RSA PRIVATE KEY-----", f"\n{drawn(64)}\n{drawn(64)}\n"),
    "password in a URL": ("https://joe:", f"{drawn(7)}@example.com/x"),
}
KINDS = [pytest.param(kind, *parts, id=kind) for kind, parts in SECRETS.items()]


def secret_of(kind: str) -> str:
    """Return what must not be shown of a kind."""
    return SECRETS[kind][1].strip().split("\n")[0].partition("@")[0]


def conversation(text: str) -> dict[str, object]:
    said = [
        {"role": "user", "content": f"Use {text} now"},
        {"role": "assistant", "content": "Yes."},
    ]
    return {"messages": said}


@pytest.fixture
def leaky(tmp_path: Path) -> str:
    """A file with a secret of each kind in a row, as a key of a call, and in a row that is a bad one."""
    rows = [conversation(f"{lead}{rest}") for lead, rest in SECRETS.values()]
    lead, rest = SECRETS["GitHub token"]
    call = {"type": "function", "function": {"name": "f", "arguments": {"token": lead + rest}}}
    asked = {"role": "user", "content": "Call."}
    rows.append({"messages": [asked, {"role": "assistant", "content": "", "tool_calls": [call]}]})
    rows.append({"messages": [{"role": lead + rest, "content": "".join(SECRETS["AWS key"])}]})
    path = tmp_path / "leaky.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def assert_hidden(text: str) -> None:
    assert [kind for kind in SECRETS if secret_of(kind) in text] == []


@pytest.mark.parametrize(("kind", "lead", "rest"), KINDS)
def test_a_secret_is_found_and_hidden_where_it_is(kind, lead, rest):
    text = f"é👩‍👩‍👧‍👦 ({lead}{rest}) and more"
    found = secrets_in(text)
    assert kind in [secret.kind for secret in found]
    assert len(hidden(text)) == len(text)
    assert_hidden(hidden(text))
    assert_hidden(public(text))
    assert hidden(hidden(text)) == hidden(text)
    assert_hidden(hidden(json.dumps(f"line\n{lead}{rest}\n")))
    assert hidden(text).startswith("é👩‍👩‍👧‍👦 (")
    assert hidden(text).endswith(" and more")


@pytest.mark.parametrize(
    "text",
    [
        "a task-oriented desk-lamp-1234567890123456789012",
        "sk-learn-is-not-a-key-but-many-words",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxx1",
        "Bearer of good-news-for-everybody",
        "http://example.com:8080/a@b and mailto:joe@example.com",
        "postgres://user:${PASSWORD}@host/db and https://joe:***@host",
        "hf_hub_download(repo_id) and AKIA is short",
        "-----BEGIN PRIVATE KEY----- is how a private key begins, and base64 follows.",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
    ],
)
def test_what_only_begins_like_a_secret_is_none(text):
    assert secrets_in(text) == []


@pytest.mark.parametrize(
    "mark",
    [
        *MARKS,
        "sk-a",
        "://a:",
        "eyJaaaaaaaaaaa.eyJ",
        "-eyJ",
        "-sk-",
        ".eyJaaaaaaaaaaa",
        "-----BEGIN A PRIVATE KEY-----\nA: b\n",
    ],
)
def test_a_text_full_of_beginnings_takes_linear_time(mark):
    """Nothing is tried twice at a place, nor for more than a bounded length."""
    assert len(hidden(mark * (MIB // len(mark)))) <= MIB


def test_an_inspection_counts_secrets_by_column_and_kind_and_names_the_first_places(leaky):
    survey = fmtkit.inspect(leaky, "openai")
    (found,) = [finding for finding in survey.findings if finding.code == "secrets"]
    assert (found.count, found.severity) == (len(SECRETS) + 1, "warning")
    assert [place.line for place in found.places] == list(range(1, len(SECRETS) + 2))
    assert found.details["messages[].tool_calls"] == "GitHub token in 1 row"
    assert {kind for kind in SECRETS if kind in found.details["messages[].content"]} == {*SECRETS}


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_found_does_not_depend_on_workers(leaky, workers):
    whole = fmtkit.inspect(leaky, "openai", workers=1).as_dict()
    assert fmtkit.inspect(leaky, "openai", workers=workers).as_dict() == whole


def test_no_secret_reaches_a_terminal_a_page_or_the_json_of_an_inspection(leaky, tmp_path, capsys):
    shown = [
        "--tokenizer",
        str(FIXTURES / "tokenizer"),
        "--chat-template",
        "qwen3",
        "--show-mask",
        "99",
    ]
    for more in (["--all"], ["--json"], []):
        done = runs.fmtkit(capsys, "inspect", leaky, "-t", "openai", *shown, *more)
        assert "**" in done.out
        assert_hidden(done.out + done.err)
    inspection = run(leaky, InspectOptions(type="openai", chat_template="qwen3"))
    page = html.render(inspection)
    chunks = re.findall(r'id="chunk-\d+">([^<]+)<', page)
    assert chunks
    for text in (page, *(gzip.decompress(base64.b64decode(chunk)).decode() for chunk in chunks)):
        assert_hidden(text)
    assert_hidden(inspection.survey._repr_html_())


def test_the_tokens_of_a_secret_are_not_in_the_json_either(leaky):
    survey = fmtkit.inspect(
        leaky, "openai", tokenizer=str(FIXTURES / "tokenizer"), chat_template="qwen3", show_mask=99
    )
    for row in survey.shown[: len(SECRETS)]:
        (side,) = row.sides
        stars = [
            token
            for token, (a, b) in zip(side.ids, side.offsets, strict=True)
            if "*" in side.text[a:b]
        ]
        assert stars
        assert set(stars) == {-1}


def test_a_conversion_shows_no_secret_and_its_files_keep_the_rows(leaky, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    done = runs.fmtkit(capsys, "convert", leaky, "-t", "openai", "-o", out)
    assert "**" in done.out + done.err
    assert_hidden(done.out + done.err)
    assert secret_of("Hugging Face token") in out.read_text()
    assert secret_of("GitHub token") in (tmp_path / "out.quarantine.jsonl").read_text()


def test_answers_of_a_run_are_shown_without_secrets():
    said = "".join(SECRETS["Hugging Face token"])
    row = {"step": 1, "prompt": said, "completion": f"It is {said}.", "tokens": 3, "reward": 1.0}
    page = samples_page.render("run", [row], "all")
    for chunk in re.findall(r'id="chunk-\d+">([^<]+)<', page):
        assert_hidden(gzip.decompress(base64.b64decode(chunk)).decode())
    assert_hidden(page)
    assert_hidden(json.dumps(samples_page.of_step(1, [row])))


@pytest.mark.parametrize("before", [0, 100, 465, 480, 495])
def test_a_secret_is_hidden_where_what_is_shown_of_a_row_ends_within_it(tmp_path, before):
    """Eight characters of it are enough to know whose it is."""
    secret = "".join(SECRETS["GitHub token"])
    rows = [
        {
            "question": "x" * before + secret,
            "chosen": "a",
            "rejected": "b",
        }
    ]
    rows.append({"question": "x" * before + secret, "chosen": 1, "rejected": "b"})
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    inspection = run(str(path), InspectOptions(type="intel", rows=(0, 1)))
    for text in (json.dumps(inspection.survey.as_dict()), html.render(inspection)):
        assert secret_of("GitHub token")[:8] not in text


def test_a_validation_shows_no_secret_in_its_messages(leaky, capsys):
    for more in (["--json"], []):
        done = runs.fmtkit(capsys, "validate", leaky, "-t", "openai", *more)
        assert "**" in done.out
        assert_hidden(done.out + done.err)


def test_an_error_shows_no_key():
    assert_hidden(str(OptionError(f"no type {''.join(SECRETS['API key'])}")))


LINES = [drawn(64, seed=n) for n in range(5)]
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        "\n        ".join(["key: |", BEGIN, *LINES, END]),
        json.dumps(json.dumps("\n".join([BEGIN, *LINES, END]))),
        json.dumps(json.dumps(json.dumps("\r\n".join([BEGIN, *LINES, END])))),
        " +\n    ".join(f'"{line}\\n"' for line in [BEGIN, *LINES, END]),
    ],
)
def test_a_private_key_is_hidden_however_its_lines_are_broken(text):
    assert [line for line in LINES if line in hidden(text)] == []


@pytest.mark.parametrize("text", ["aws_secret_access_key  =  ", "Bearer  "])
def test_a_secret_is_hidden_behind_more_blanks(text):
    key = drawn(40)
    assert key not in hidden(f"{text}{key}")


def test_a_secret_that_is_cut_or_names_a_column_is_never_shown(tmp_path, capsys):
    key = "".join(SECRETS["GitHub token"])
    rows = [
        {"question": f"q {n}", "answer": f"a {n}", "x": f"{key} and a long text {n}", key: n}
        for n in range(9)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = runs.fmtkit(capsys, "inspect", path, "--json")
    assert key[:20] not in done.out
