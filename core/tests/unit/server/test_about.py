from __future__ import annotations

from dougong import __version__
from dougong.planner.record import plan_from_json
from tests.unit.server.conftest import Served


async def test_every_name_of_the_model_is_listed_and_answers(served: Served) -> None:
    listed = (await served.client.get("/v1/models")).json()
    assert [one["id"] for one in listed["data"]] == ["tiny", "also/tiny"]
    assert listed["data"][0]["max_model_len"] == 64
    for name in ("tiny", "also/tiny"):
        assert (await served.client.get(f"/v1/models/{name}")).json()["id"] == name
        answer = await served.post("/v1/completions", prompt="A", model=name)
        assert answer.json()["model"] == name


async def test_an_unknown_model_is_a_404_that_names_the_field(served: Served) -> None:
    for answer in (
        await served.client.get("/v1/models/other"),
        await served.post("/v1/completions", prompt="A", model="other"),
        await served.post("/tokenize", prompt="A", model="x" * 10_000),
    ):
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "model"
        assert answer.json()["error"]["code"] == "model_not_found"
        assert len(answer.text) < 500


async def test_the_plan_is_the_one_that_can_be_saved_and_insisted_on(served: Served) -> None:
    answer = await served.client.get("/plan")
    assert answer.headers["content-type"] == "application/json"
    assert plan_from_json(answer.text) == served.engine.report.plan


async def test_versions_are_told(served: Served) -> None:
    assert (await served.client.get("/version")).json()["version"] == __version__
