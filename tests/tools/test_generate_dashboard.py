import json
import re
from typing import Any

from tools.dashboard_rows import FIGURES, ROWS
from tools.generate_dashboard import PAGE, main, render


def panels() -> list[dict[str, Any]]:
    """All panels, those in rows after their row."""
    return [each for panel in json.loads(render())["panels"] for each in (panel, *panel.get("panels", ()))]


def test_what_is_committed_is_up_to_date() -> None:
    assert main(["--check"]) == 0
    assert PAGE.read_text(encoding="utf-8") == render()


def test_six_figures_with_thresholds_are_on_top_and_rows_are_collapsed() -> None:
    figures = panels()[:6]
    assert [panel["title"] for panel in figures] == [panel.title for panel in FIGURES]
    assert sum(len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1 for panel in figures) == 5
    assert all(panel["collapsed"] and panel["panels"] for panel in panels() if panel["type"] == "row")


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
    variables = {variable["name"]: variable for variable in json.loads(render())["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "job", "instance"]
    # Series outside Kubernetes have no namespace.
    assert re.fullmatch(variables["namespace"]["allValue"], "")
    assert variables["instance"]["definition"] == (
        'label_values(kproxy_build_info{namespace=~"$namespace", job=~"$job"}, instance)'
    )
    for panel in panels():
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
            chosen = 'namespace=~"$namespace", job=~"$job", instance=~"$instance"'
            assert target["expr"].count(chosen) == target["expr"].count("kproxy_") + target["expr"].count("process_")
            assert "@" not in target["expr"]
