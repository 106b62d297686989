import pytest

from indexer.markup import read_markdown, read_restructured_text


def test_front_matter_becomes_metadata_and_title_and_leaves_the_text() -> None:
    extracted = read_markdown(
        "---\r\ntitle: Ferry\r\ndate: 2024-02-03\r\ntags: [a, b]\r\n---\r\n# Times\r\n\r\nDaily.\r\n"
    )
    assert extracted.text == "# Times\r\n\r\nDaily.\r\n"
    assert extracted.title == "Ferry"
    assert extracted.metadata == {"date": "2024-02-03", "tags": '["a","b"]'}


@pytest.mark.parametrize(
    "source",
    [
        "---\n[: broken\n---\ntext",
        "---\njust words\n---\ntext",
        "---\ndate: 2024-13-45\n---\ntext",
        "---\na: &a [x]\nb: *a\n---\ntext",
        "---\na: &a [*a]\n---\ntext",
        "---\na: !!bool maybe\n---\ntext",
        "---\na: !!python/object:os.system x\n---\ntext",
        f"---\na: {'[' * 5000}\n---\ntext",
        f"---\na: {'[' * 400}{']' * 400}\n---\ntext",
        "+++\na = \n+++\ntext",
        "a\n---\nb: c\n---\n",
        "+++\n" + "a." * 1_000_000 + "a = 1\n+++\ntext",  # would take hours
    ],
)
def test_what_is_no_front_matter_stays(source: str) -> None:
    assert read_markdown(source).text == source


def test_the_title_is_the_first_heading_where_front_matter_names_none() -> None:
    assert read_markdown("intro\n\n# The `csv` module\n").title == "The csv module"
    assert read_markdown("no heading").title == ""


def test_lines_that_steer_a_site_generator_go_but_not_in_code() -> None:
    source = (
        "a\n{% include copy.html %}\n{: .note }\nb {{ x }} {% y %}\n<!-- c\nd -->\n```\n{% raw %}\n<!-- e -->\n```\n"
    )
    assert read_markdown(source).text == "a\n\n\nb {{ x }} {% y %}\n\n```\n{% raw %}\n<!-- e -->\n```\n"


def test_comments_that_nothing_closes_stay_and_cost_no_more_than_text() -> None:
    source = "<!-- " * 300_000
    assert read_markdown(source).text == source


def test_front_matter_in_toml_and_an_address_are_read() -> None:
    extracted = read_markdown('+++\r\ntitle = "Tide"\nurl = "https://x.example/tide"\nyear = 1871\n+++\nHigh.')
    assert (extracted.text, extracted.title, extracted.url) == ("High.", "Tide", "https://x.example/tide")
    assert extracted.metadata == {"year": 1871}
    assert read_markdown("---\nurl: /tide/\n---\n").metadata == {"url": "/tide/"}


def test_restructured_text_loses_what_does_not_show() -> None:
    source = """:orphan:
:Author: Ana

.. _tide-label:

====
Tide
====

.. toctree::
   :maxdepth: 2

   intro

.. a comment
   in two lines

See :func:`~os.path.join` and :ref:`the tide <tide-label>`, not ``:role:`x```.

.. note::
   High water.

.. [1] A footnote.
"""
    extracted = read_restructured_text(source)
    assert (extracted.title, extracted.metadata) == ("Tide", {"orphan": True, "author": "Ana"})
    lines = [line for line in extracted.text.split("\n") if line]
    assert lines == [
        *("Tide", "====", "See os.path.join and the tide, not ``:role:`x```.", ".. note::", "   High water."),
        ".. [1] A footnote.",
    ]


def test_fields_of_restructured_text_may_end_in_carriage_returns() -> None:
    extracted = read_restructured_text(":orphan:\r\n:title: Tide\r\n\r\nHigh.\r\n")
    assert (extracted.text, extracted.title) == ("\r\nHigh.\r\n", "Tide")
    assert extracted.metadata == {"orphan": True}


@pytest.mark.parametrize("source", ["", "plain", "plain\n", "a\r\nb\r\n", "..", "...", "a ..\n\nb", ".. comment"])
def test_plain_restructured_text_is_as_it_was(source: str) -> None:
    assert read_restructured_text(source).text == (source if source not in ("..", ".. comment") else "")
