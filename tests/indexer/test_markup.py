import pytest

from indexer.markup import read_html, read_markdown


def test_front_matter_becomes_metadata_and_title_and_leaves_the_text() -> None:
    extracted = read_markdown(
        "---\r\ntitle: Ferry\r\ndate: 2024-02-03\r\ntags: [a, b]\r\n---\r\n# Times\r\n\r\nDaily.\r\n"
    )
    assert extracted.text == "# Times\r\n\r\nDaily.\r\n"
    assert extracted.title == "Ferry"
    assert extracted.metadata == {"date": '"2024-02-03"', "tags": '["a","b"]'}


@pytest.mark.parametrize(
    "source",
    [
        "---\n[: broken\n---\ntext",
        "---\njust words\n---\ntext",
        "---\ndate: 2024-13-45\n---\ntext",
        "a\n---\nb: c\n---\n",
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


def test_html_gives_its_main_text_with_headings_lists_and_code() -> None:
    page = b"""<!doctype html><html lang=en><head><title> Ferry
      times </title><meta name=description content="When it goes"><style>p{}</style></head><body>
      <nav>Home | About</nav><main><h1>Ferry</h1><p>It goes <b>daily</b>, <a href=x>see</a>.<br>Not on Sundays</p>
      <ul><li>one<li><p>two</p></ul><pre>def f():
    return 1
</pre><table><tr><th>From<th>To</tr><tr><td>Porto<td>Turku</tr></table><script>alert(1)</script><!-- no --></main>
      <footer>(c)</footer></body></html>"""
    extracted = read_html(page)
    assert extracted.title == "Ferry times"
    assert extracted.metadata == {"language": "en", "description": "When it goes"}
    assert extracted.text.split("\n") == [
        *("# Ferry", "", "It goes daily, see.", "Not on Sundays", "", "- one", "- two", "", "def f():", "    return 1"),
        *("", "From | To", "Porto | Turku"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a", "a"),
        ("", ""),
        ("just text", "just text"),
        ("<div>a</div> <div>b</div>", "a\n\nb"),
        ("<p>a<span>b</span> c", "ab c"),
        ("<main></main><p>a", "a"),
        ("<article>a</article><article>b</article>", "a\n\nb"),
        ("<p>&lt;b&gt; &amp; caf\u00e9", "<b> & café"),
    ],
)
def test_small_and_broken_pages_give_their_text(page: str, text: str) -> None:
    assert read_html(page.encode()).text == text


def test_the_declared_encoding_is_used() -> None:
    assert read_html('<meta charset="iso-8859-1"><p>café'.encode("latin-1")).text == "café"


def test_deep_nesting_does_not_matter() -> None:
    assert read_html(b"<div>" * 3000 + b"deep").text == "deep"


def test_a_page_in_xml_is_read_without_a_warning() -> None:
    assert read_html(b'<?xml version="1.0"?><html xmlns="x"><body><p>a</p></body></html>').text == "a"
