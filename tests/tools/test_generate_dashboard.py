import json
from typing import Any

from tools.dashboard_rows import ROWS
from tools.generate_dashboard import PAGE, main, render


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(render())["panels"]
    return found


def test_what_is_committed_is_up_to_date() -> None:
    assert main(["--check"]) == 0
    assert PAGE.read_text(encoding="utf-8") == render()


def test_rows_are_those_of_the_table() -> None:
    assert [panel["title"] for panel in panels() if panel["type"] == "row"] == list(ROWS)


def test_each_panel_has_a_unit_a_description_and_a_place_of_its_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert [target["refId"] for target in panel["targets"]] == list("ABCDEF")[: len(panel["targets"])]
    numbers = [panel["id"] for panel in panels()]
    assert len(set(numbers)) == len(numbers)


def test_source_and_instances_can_be_chosen() -> None:
    names = [variable["name"] for variable in json.loads(render())["templating"]["list"]]
    assert names == ["datasource", "job", "instance"]
    for panel in panels():
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'instance=~"$instance"' in target["expr"]
            assert "@" not in target["expr"]
