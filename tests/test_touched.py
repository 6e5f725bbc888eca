"""`make check` runs the tests that a change touches."""

import pytest
import touched


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("tests/test_cli.py", "tests/test_cli.py"),
        ("fmtkit/reading/clean_lines.py", "tests/test_kernel_lines.py"),
        ("tests/killed_runs.py", "tests/test_sinks.py"),
        ("fmtkit/converters/intel.py", "tests/test_converters.py"),
        ("fmtkit/reading/kernel/json.c", "tests/test_native.py"),
        ("fmtkit/reading/kernel/turns.c", "tests/test_kernel_layouts.py"),
        ("fmtkit/core/message_keys.py", "tests/test_messages_follow.py"),
        ("fmtkit/core/message_keys.py", "tests/test_targets.py"),
        ("fmtkit/rendering/conversation_columns.py", "tests/test_chat.py"),
        ("pyproject.toml", "tests/test_package.py"),
        ("runners/dpo.py", "tests/test_runners.py"),
        ("docs/grpo.md", "tests/test_docs.py"),
        ("fmtkit/targets/openai.py", "tests/test_targets.py"),
        ("fmtkit/training/planning/plan.py", "tests/test_training_planning.py"),
        ("fmtkit/training/run/stepwise.py", "tests/test_runners.py"),
        ("templates/models/qwen3.jinja", "tests/test_model_templates.py"),
    ],
)
def test_a_change_touches_the_tests_that_read_it(path, test):
    assert test in touched.touched([path])


def test_a_change_that_no_test_reads_touches_none():
    assert touched.touched(["LICENSE"]) == []


def test_a_module_that_a_test_imports_touches_tests_of_its_importers_too():
    path = "fmtkit/writing/journal.py"
    found = touched.touched([path])
    assert found[0] == "tests/test_journal.py"
    importers = {"tests/test_folder_sink.py", "tests/test_object_sinks.py"}
    assert importers <= set(found[-touched.RING :])
    assert len(found) == len(set(found))


def test_the_tests_named_like_a_module_come_first():
    found = touched.touched(["fmtkit/rendering/tracing.py"])
    assert found[0] == "tests/test_tracing.py"
    assert len(found) > 1


def test_every_module_touches_a_test_of_what_it_does():
    tests = {file: touched.named_by(file) for file in (touched.ROOT / "tests").rglob("test_*.py")}
    known = set().union(*tests.values()) | {file.stem for file in tests}
    rooms = [*touched.ROOT.glob("fmtkit/**/*.py"), *touched.ROOT.glob("runners/**/*.py")]
    for path in (str(one.relative_to(touched.ROOT)) for one in rooms):
        read = touched.read_by_tests(path, known)
        assert any(touched.is_read(one, known) for one in read), path
