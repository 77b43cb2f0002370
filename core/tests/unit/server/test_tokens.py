from __future__ import annotations

import pytest

from tests.unit.server.conftest import Served

HELLO = [{"role": "user", "content": "hi"}]


async def test_a_text_becomes_ids_and_ids_become_the_text(served: Served) -> None:
    text = "then, 好 <|eos|>"
    found = (await served.post("/tokenize", prompt=text)).json()
    assert found["tokens"] == served.engine.tokenizer.encode(text)
    assert found["count"] == len(found["tokens"])
    assert found["max_model_len"] == 64
    assert (await served.post("/detokenize", tokens=found["tokens"])).json() == {"prompt": text}


async def test_a_conversation_becomes_what_chat_sends_to_the_model(served: Served) -> None:
    found = (await served.post("/tokenize", messages=HELLO)).json()
    expected = served.engine.tokenizer.encode_chat(HELLO)
    assert found["tokens"] == expected
    bare = (await served.post("/tokenize", messages=HELLO, add_generation_prompt=False)).json()
    assert bare["tokens"] == expected[: bare["count"]]
    assert bare["count"] < found["count"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": HELLO, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [288]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens.0"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_the_fields_name(
    served: Served, path: str, body: dict[str, object], field: str
) -> None:
    answer = await served.post(path, **body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
