import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fmtkit.columns.problems import Column
from fmtkit.columns.source_expressions import Steps
from fmtkit.columns.transcripts import question_or_transcript, transcript

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(str.strip)
SAID = TEXT.filter(lambda text: text != "" and "Human:" not in text and "Assistant:" not in text)


def evaluated(column: Column, texts: list[str]) -> list[list[tuple[str, str]]]:
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.String})
    frame = Steps([column]).computed(frame)
    conversations = frame.select(column.value).to_series().to_list()
    return [
        [(turn["role"], turn["content"]) for turn in conversation] for conversation in conversations
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(SAID, SAID), min_size=1, max_size=4))
def test_a_transcript_has_the_turns_that_it_was_made_of(exchanges: list[tuple[str, str]]) -> None:
    text = "".join(f"\n\nHuman: {asked}\n\nAssistant: {said}" for asked, said in exchanges)
    wanted = [(r, t) for e in exchanges for r, t in zip(("user", "assistant"), e, strict=True)]
    # Python and polars differ on what is white space at the edge of a text (U+001C and the like).
    made = evaluated(transcript(Column(pl.col("text")), "text"), [text])[0]
    assert [(role, said.strip()) for role, said in made] == wanted


def test_a_transcript_that_ends_open_is_a_prompt_and_other_text_a_question() -> None:
    made = evaluated(
        question_or_transcript(Column(pl.col("text"))),
        ["\n\nHuman: A\n\nAssistant: ", "Human: A\n\nAssistant:", "The Human: A", "A\n\nHuman: B"],
    )
    assert made == [
        [("user", "A")],
        [("user", "A")],
        [("user", "The Human: A")],
        [("user", "A\n\nHuman: B")],
    ]
