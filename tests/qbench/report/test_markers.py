import pytest

from qbench.report.markers import replace_between_markers
from quant.errors import InputError


def test_only_the_text_between_the_markers_changes(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(
        "before\n\n<!-- qbench:demo begin -->\nold\n<!-- qbench:demo end -->\n\nafter \\1 é\n", encoding="utf-8"
    )
    assert replace_between_markers(path, "demo", "| a \\g<0> |\n")
    expected = "before\n\n<!-- qbench:demo begin -->\n| a \\g<0> |\n<!-- qbench:demo end -->\n\nafter \\1 é\n"
    assert path.read_text(encoding="utf-8") == expected
    assert not replace_between_markers(path, "demo", "| a \\g<0> |\n"), "a second time there is nothing to do"
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("nothing here", id="no markers"),
        pytest.param("<!-- qbench:demo begin -->", id="no end"),
        pytest.param("<!-- qbench:demo end --><!-- qbench:demo begin -->", id="wrong order"),
        pytest.param("<!-- qbench:demo begin --><!-- qbench:demo end -->" * 2, id="two pairs"),
    ],
)
def test_markers_that_do_not_make_one_pair(tmp_path, content):
    path = tmp_path / "README.md"
    path.write_text(content)
    with pytest.raises(InputError, match="expected one pair"):
        replace_between_markers(path, "demo", "text")
    assert path.read_text() == content


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        replace_between_markers(tmp_path / "absent.md", "demo", "text")
