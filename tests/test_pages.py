"""The README and the docs show what the result files say."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILL = runpy.run_path(str(ROOT / "docs" / "fill.py"))
TABLES = FILL["tables"]()


@pytest.mark.parametrize("path", FILL["PAGES"], ids=lambda path: path.name)
def test_a_page_shows_the_tables_of_the_result_files(path):
    page = path.read_text()
    assert FILL["fill"](page) == page, "make tables"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_table_is_made_from_the_files_beside_it(path):
    assert path.read_text() == TABLES[path], "make tables"


@pytest.mark.parametrize("path", FILL["PAGES"], ids=lambda path: path.name)
def test_what_a_page_links_to_is_there(path):
    links = re.findall(r"\]\(((?!https?:|#)[^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_part_has_its_place():
    pages = "".join(path.read_text() for path in FILL["PAGES"])
    for name in FILL["PARTS"]:
        assert pages.count(f"<!-- {name} -->") == pages.count(f"<!-- end of {name} -->") == 1


def test_what_is_between_the_comments_is_made_anew():
    old = "before\n<!-- table 1 -->\nstale\n<!-- end of table 1 -->\nafter\n"
    new = FILL["fill"](old)
    assert "stale" not in new
    assert new.startswith("before\n<!-- table 1 -->\n\n| set | variant |")
    assert new.endswith("\n\n<!-- end of table 1 -->\nafter\n")
