"""`fmtkit try --judge`: both orders are asked, ties and what is no verdict are counted."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from fmtkit.core.errors import OptionError
from fmtkit.training.trained import judging

PAIRS = [("p", "long answer", "short"), ("p", "a", "bbb"), ("p", "xx", "yy")]


def longer(prompt, first, second):
    if len(first) == len(second):
        return "tie"
    return int(len(second) > len(first))


def test_a_win_is_one_in_both_orders_and_a_tie_is_half():
    found = judging.judged("longer", longer, PAIRS)
    assert found.outcomes == ("win", "loss", "tie")
    assert found.figures()["win_rate"] == 0.5
    assert found.swayed == 0


def test_a_judge_of_places_has_no_influence():
    found = judging.judged("first", lambda *_: 0, PAIRS)
    assert found.outcomes == ("tie",) * 3
    assert found.figures() == {
        "win_rate": 0.5,
        "wins": 0,
        "ties": 3,
        "losses": 0,
        "equal_answers": 0,
        "swayed_by_order": 3,
        "without_verdict": 0,
        "retried": 0,
    }


def test_what_is_no_verdict_is_asked_for_again_and_counted():
    said = iter(["maybe", 0])
    found = judging.judged("slow", lambda *_: next(said, 1), PAIRS[:1])
    assert (found.outcomes, found.retried) == (("win",), 1)

    def silent(prompt, first, second):
        if "odd" in (first, second):
            raise TimeoutError("no answer")
        return longer(prompt, first, second)

    found = judging.judged("silent", silent, [*PAIRS * 2, ("p", "odd", "even")])
    assert found.figures()["without_verdict"] == 1
    # Two tries more in the first order; the other does not matter then.
    assert found.retried == 2


def test_a_judge_without_verdicts_on_too_many_pairs_is_an_error_with_the_last_answer():
    with pytest.raises(
        OptionError, match=r"no verdict on 1 of the first 1 pairs \(of 3\), asked 3 times.*'good'"
    ):
        judging.judged("nonsense", lambda *_: "good", PAIRS)


@pytest.mark.parametrize("name", ["trl.PairRMJudge", "trl.experimental.judges.HfPairwiseJudge"])
def test_judges_that_trl_had_are_answered_by_name(name, tmp_path):
    with pytest.raises(OptionError, match="TRL has no judges any more"):
        judging.load(name, [tmp_path])


def test_a_function_and_a_class_as_trls_were_are_judges(tmp_path):
    (tmp_path / "my_judges.py").write_text(
        "def longer(prompt, first, second):\n"
        "    return int(len(second) > len(first))\n"
        "class Longer:\n"
        "    def judge(self, prompts, completions, shuffle_order=True):\n"
        "        return [int(len(b) > len(a)) for a, b in completions]\n"
    )
    for name in ("my_judges.longer", "my_judges.Longer"):
        assert judging.load(name, [tmp_path])("p", "a", "bb") == 1


def test_chat_is_answered_with_the_command_that_there_is(capsys):
    from fmtkit.commands.application import application

    with pytest.raises(SystemExit) as stop:
        application()(["chat", "runs/x"])
    assert stop.value.code == 2
    assert "fmtkit try RUN" in capsys.readouterr().err


class Standin(BaseHTTPRequestHandler):
    """Prefers the longer answer; says something else where one of them is `odd`."""

    def do_GET(self):
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, asked["model"], self.headers["Authorization"]))
        text = asked["messages"][0]["content"]
        first, second = (
            text.partition(f"<answer {x}>\n")[2].partition(f"\n</answer {x}>")[0] for x in "AB"
        )
        said = "A." if len(first) > len(second) else "b" if len(first) < len(second) else "TIE"
        said = "Both are fine" if "odd" in (first, second) else said
        said = f"<think>\nA or B?\n</think>\n\n{said}" if "thinks" in text else said
        body = json.dumps({"choices": [{"message": {"content": said}}]}).encode()
        if "broken" in text:
            body = b'{"error": "overloaded"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = HTTPServer(("127.0.0.1", 0), Standin)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_server_judges(server, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    url = f"http://127.0.0.1:{server.server_port}/v1"
    ask = judging.load(url, [tmp_path], "judge-1")
    assert judging.judged(url, ask, PAIRS).outcomes == ("win", "loss", "tie")
    assert set(server.asked) == {("/v1/chat/completions", "judge-1", "Bearer sk-test")}
    with pytest.raises(OptionError, match="it answered 'Both are fine'"):
        judging.judged(url, ask, [("p", "odd", "even")])
    assert judging.judged(url, ask, [("thinks", "aa", "b")]).outcomes == ("win",)
    with pytest.raises(OptionError, match="the last: KeyError: 'choices'"):
        judging.judged(url, ask, [("broken", "aa", "b")])


def test_a_server_needs_a_model_and_a_function_takes_none(tmp_path):
    with pytest.raises(OptionError, match="--judge-model"):
        judging.load("http://127.0.0.1:1/v1", [tmp_path])
    with pytest.raises(OptionError, match="it is for a server"):
        judging.load("my_judges.longer", [tmp_path], "m")


def test_a_server_that_is_not_there_is_told_before_anything_is_answered(tmp_path, monkeypatch):
    monkeypatch.setattr("fmtkit.training.trained.server_judge.SECONDS", 2.0)
    with pytest.raises(OptionError, match="no server answers there"):
        judging.load("http://127.0.0.1:9/v1", [tmp_path], "m")


class Odd:
    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None

    def __repr__(self):
        return "odd " * 1000


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (None, "it answered None"),
        (2, "it answered 2"),
        (-1, "it answered -1"),
        (1.0, "it answered 1.0"),
        ("A", "it answered 'A'"),
        ([0], "it answered .0."),
        (Odd(), "it answered odd odd"),
    ],
)
def test_nonsense_is_no_verdict_and_is_shown(verdict, message):
    with pytest.raises(OptionError, match=message) as found:
        judging.judged("odd", lambda *_: verdict, PAIRS)
    assert len(str(found.value)) < 500


def test_numbers_of_numpy_and_truth_values_are_verdicts():
    import numpy as np

    for made in (np.int64, bool):
        found = judging.judged(
            "longer", lambda _, a, b, made=made: made(len(b) > len(a)), PAIRS[:2]
        )
        assert found.outcomes == ("win", "loss")
    assert judging.judged("even", lambda *_: " Tie\n", PAIRS).outcomes == ("tie",) * 3


def test_equal_answers_are_ties_of_which_nothing_is_asked():
    def never(*_):
        raise AssertionError

    found = judging.judged("never", never, [("p", "same", "same")])
    assert (found.outcomes, found.equal, found.retried) == (("tie",), 1, 0)


def test_a_judge_that_ends_the_process_or_never_answers_gave_no_verdict(monkeypatch):
    import threading

    def leaves(*_):
        raise SystemExit(0)

    with pytest.raises(OptionError, match="the last: SystemExit: 0"):
        judging.judged("leaves", leaves, PAIRS)
    monkeypatch.setattr(judging, "SECONDS", 0.05)
    forever = threading.Event()
    with pytest.raises(OptionError, match=r"did not answer within 0\.05 s"):
        judging.judged("waits", lambda *_: forever.wait(), PAIRS)
    forever.set()


def test_what_a_judge_prints_is_no_result(capsys):
    def chatty(prompt, first, second):
        print("thinking")
        return longer(prompt, first, second)

    judging.judged("chatty", chatty, PAIRS)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "thinking" in shown.err


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def judge(prompt, answers): return 0", r"does not take \(prompt, first, second\)"),
        ("async def judge(prompt, a, b): return 0", "is a coroutine"),
        ("class judge:\n    def judge(self, prompts): return [0]", r"\(prompts, completions\)"),
        ("class judge:\n    def __init__(self, model): pass", "missing 1 required"),
        ("class judge:\n    pass", "has no method judge"),
        ("judge = 3", "judge"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_refused_before_any_answer(tmp_path, code, message):
    name = f"judges_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    with pytest.raises(OptionError, match=message):
        judging.load(f"{name}.judge", [tmp_path])
