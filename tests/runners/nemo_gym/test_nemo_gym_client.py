"""The client of a NeMo Gym, against a stand-in over real HTTP: servers, /verify, and what fails."""

import json
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress

import gym_standin as standin
import pytest

from fmtkit.core import foreign_calls, http_client
from fmtkit.core.errors import OptionError
from fmtkit.runners.nemo_gym import head
from fmtkit.runners.nemo_gym.settings import GymSettings
from fmtkit.runners.nemo_gym.verify import Verify
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.online.failed_samples import Failures

ROW = '{"responses_create_params":{"input":"2+2?","temperature":1.0},"answer":"4","level":0.10}'


def fault(kind: str) -> str:
    return json.dumps(json.loads(ROW) | {"fault": kind})


@contextmanager
def verifying(server: str = "arithmetic", retries: int = 0, failures=None, **settings):
    with standin.running() as gym:
        directory = head.read(f"http://127.0.0.1:{gym.head_port}")
        own = GymSettings(**{"model_name": "tiny", "verify_timeout": 5, **settings})
        find = lambda name, agent: head.verifier(directory, name, agent).url  # noqa: E731
        reward = Verify(own, find, retries)
        reward.failures = failures or reward.failures

        def judge(rows, completions, log=None):
            count = len(rows)
            return reward(
                completions=completions,
                nemo_gym_row=rows,
                nemo_gym_server=[server] * count,
                nemo_gym_agent=[None] * count,
                log_metric=log,
                trainer_state=None,
            )

        yield gym, judge


def test_servers_are_found_by_the_names_that_rows_use():
    with standin.running() as gym:
        found = head.read(f"http://127.0.0.1:{gym.head_port}")
    assert found.of_kind(head.RESOURCES) == ["arithmetic", "memory"]
    assert found.of_kind(head.AGENTS) == ["arithmetic_agent", "lonely"]
    assert found.resources_of == {"arithmetic_agent": "arithmetic"}
    assert found.servers["memory"].url == f"http://127.0.0.1:{gym.ports['memory']}"


def test_a_head_that_lists_no_instances_is_read_by_its_configuration():
    with standin.running() as gym:
        listed = head.read(f"http://127.0.0.1:{gym.head_port}")
        gym.lists_instances = False
        assert head.read(f"http://127.0.0.1:{gym.head_port}") == listed


def test_what_is_no_head_server_is_told():
    with standin.running() as gym, pytest.raises(http_client.CallError, match="answered 404"):
        head.read(f"http://127.0.0.1:{gym.ports['arithmetic']}")


def test_a_row_goes_to_its_server_or_to_the_one_of_its_agent():
    with standin.running() as gym:
        found = head.read(f"http://127.0.0.1:{gym.head_port}")
    assert head.verifier(found, "memory", None).name == "memory"
    assert head.verifier(found, "memory", "arithmetic_agent").name == "memory"
    assert head.verifier(found, None, "arithmetic_agent").name == "arithmetic"
    assert head.agent_server(found, None, "lonely").name == "lonely"
    assert head.agent_server(found, "arithmetic", None).name == "arithmetic_agent"


@pytest.mark.parametrize(
    ("route", "server", "agent", "words"),
    [
        (
            head.verifier,
            "arithmetik",
            None,
            "no running resources server is named 'arithmetik'; did",
        ),
        (head.verifier, "lonely", None, "no running resources server is named 'lonely'"),
        (
            head.verifier,
            None,
            None,
            "a row does not name a server; set server_name next to its path",
        ),
        (head.verifier, None, "lonely", "the agent lonely does not name a resources server"),
        (head.agent_server, "memory", None, "no agent uses memory; start one that does"),
        (
            head.agent_server,
            None,
            None,
            "a row names neither an agent nor a server; set server_name",
        ),
        (head.agent_server, None, "loneley", "did you mean 'lonely'?"),
    ],
)
def test_a_row_that_no_server_takes_is_a_configuration_error(route, server, agent, words):
    with standin.running() as gym:
        found = head.read(f"http://127.0.0.1:{gym.head_port}")
    with pytest.raises(OptionError, match=words.replace("?", r"\?")):
        route(found, server, agent)


def test_a_server_with_several_agents_needs_the_rows_to_name_one():
    servers = {n: head.GymServer(n, head.AGENTS, "http://x:1") for n in ("one", "two")}
    directory = head.Directory(servers, {"one": "math", "two": "math", "asleep": "math"})
    with pytest.raises(OptionError, match="math has the agents one, two; name one in the rows"):
        head.agent_server(directory, "math", None)


def test_the_reward_is_what_the_server_says_in_the_order_of_the_answers():
    with verifying() as (gym, judge):
        messages = [{"role": "assistant", "content": "4"}]
        assert judge([ROW] * 3, ["4", "5", messages]) == [1.0, 0.0, 1.0]
        first = gym.posts("arithmetic/verify")[0]
    assert first["response"]["model"] == "tiny"
    assert {k: first[k] for k in ("answer", "level")} == {"answer": "4", "level": 0.1}


def test_the_row_is_sent_as_it_was_written():
    from fmtkit.runners.nemo_gym import bodies

    body = bodies.verify_body(bodies.row_of(ROW), "4", "tiny", 0).decode()
    assert body.startswith(ROW.removesuffix("}") + ',"response":{')


def test_many_answers_are_judged_side_by_side():
    with verifying() as (gym, judge):
        texts = [str(number) for number in range(100)]
        assert judge([ROW] * 100, texts).index(1.0) == 4
    assert len(gym.posts("arithmetic/verify")) == 100


def test_each_answer_has_a_session_of_its_own():
    with verifying("memory") as (gym, judge):
        assert judge([ROW] * 5, ["4"] * 5) == [1.0] * 5
    sessions = [session for path, _, session in gym.asked if path == "memory/verify"]
    assert len(set(sessions)) == 5
    assert all(gym.seeded[session]["answer"] == "4" for session in sessions)


def test_answers_that_a_server_cannot_judge_are_left_out_and_counted():
    logged = {}
    with verifying(verify_timeout=0.3) as (_, judge):
        rows = [ROW, fault("500"), fault("slow"), '{"responses_create_params":{"input":"q"}}']
        found = judge(rows, ["4"] * 4, logged.__setitem__)
    assert found == [1.0, None, None, None]
    assert logged == {"nemo_gym/verify_errors": 3.0, "nemo_gym/masked": 0.0}


def test_the_trainer_learns_which_answers_failed_why_and_how_long_each_took():
    failures = Failures()
    with verifying(failures=failures, verify_timeout=0.3) as (_, judge):
        judge([ROW, fault("500"), fault("slow")], ["4"] * 3)
    failed = failures.take()
    assert sorted(failed) == [1, 2]
    assert "answered 500" in failed[1]
    assert "did not answer within 0.3 s" in failed[2]
    found = failures.timings.finding()
    assert found.startswith("the slowest call of nemo_gym took")
    assert "of 0.3 s, for completion '4'" in found
    assert {name for name, _ in failures.timings.metrics()} == {
        "seconds/nemo_gym/mean",
        "seconds/nemo_gym/max",
    }


def test_an_answer_whose_judgement_fails_for_a_moment_is_judged_again(monkeypatch):
    monkeypatch.setattr(foreign_calls, "FIRST_PAUSE", 0.0)
    failures = Failures()
    refusals = iter([standin.Refused(500, "busy")])
    with verifying(failures=failures, retries=1) as (gym, judge):

        def once_busy(request):
            for refusal in refusals:
                raise refusal
            return 1.0

        gym.judge = once_busy
        assert judge([ROW] * 3, ["4"] * 3) == [1.0] * 3
        assert len(gym.posts("arithmetic/verify")) == 4
    assert failures.take() == {}


def test_a_batch_without_one_reward_ends_the_run():
    with (
        verifying() as (_, judge),
        pytest.raises(
            TrainingError, match=r"all 2 calls of /verify failed, 2 of them with: .* 500"
        ),
    ):
        judge([fault("500")] * 2, ["4"] * 2)


def test_a_dead_server_is_tried_again_before_the_run_ends(monkeypatch):
    monkeypatch.setattr(http_client, "PAUSES", (0.01, 0.01))
    with verifying() as (_, judge):
        pass
    with pytest.raises(TrainingError, match=r"no server at .*continue with --resume"):
        judge([ROW], ["4"])


def test_a_server_that_is_started_again_meanwhile_is_asked_again(monkeypatch):
    with standin.running() as gym:
        url = f"http://127.0.0.1:{gym.head_port}/none"
    with ExitStack() as stack:
        starts = iter([lambda: None, lambda: stack.enter_context(standin.running(gym.head_port))])
        waited = []
        monkeypatch.setattr(http_client.time, "sleep", lambda s: (waited.append(s), next(starts)()))
        with pytest.raises(http_client.CallError, match="answered 404"):
            http_client.post(url, b"{}", 5)
    assert waited == [0.5, 1.0]


def test_a_call_that_was_broken_off_is_made_again_only_where_that_is_harmless(monkeypatch):
    monkeypatch.setattr(http_client, "PAUSES", (0.0,))
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/run"

        def hang_up():
            for _ in range(3):
                connection, _ = server.accept()
                heard.append(connection.recv(1 << 16)[:4])
                connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(http_client.BrokenOffError):
            http_client.post(url, b"{}", 5)
        with pytest.raises(http_client.BrokenOffError):
            http_client.post(url, b"{}", 5, repeats=True)
    assert heard == [b"POST"] * 3


def test_a_server_that_sends_a_byte_now_and_then_runs_out_of_time():
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def trickle():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            with suppress(OSError):
                while not stop.wait(0.02):
                    connection.sendall(b" ")

        threading.Thread(target=trickle, daemon=True).start()
        with pytest.raises(http_client.CallError, match=r"did not answer within 0\.3 s"):
            http_client.get(f"http://127.0.0.1:{server.getsockname()[1]}/", 0.3)
        stop.set()


def test_an_answer_without_a_reward_is_no_reward():
    with verifying() as (gym, judge):
        gym.judge = lambda request: None
        with pytest.raises(TrainingError, match="the answer has no reward, but"):
            judge([ROW], ["4"])


def test_a_masked_sample_has_no_reward_and_is_no_failure():
    logged = {}
    masked = json.dumps(json.loads(ROW) | {"mask_sample": True})
    with verifying() as (_, judge):
        found = judge([ROW, masked], ["4", "4"], logged.__setitem__)
        assert judge([masked], ["4"]) == [None]
    assert found == [1.0, None]
    assert logged == {"nemo_gym/verify_errors": 0.0, "nemo_gym/masked": 1.0}
