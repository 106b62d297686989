"""The page loads nothing from elsewhere and never makes markup of text."""

import re

import pytest
from fastapi.testclient import TestClient

from service.website import load_files

FILES = {name: content.decode() for name, content in load_files().items()}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_and_all_that_it_loads_is_served(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for address in re.findall(r'(?:src|href)="(/page/[^"]*)"', page.text):
        assert client.get(address).status_code == 200


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_file_names_another_host(name: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", FILES[name])) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.endswith(".js")))
def test_text_enters_the_page_as_text_only(name: str) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|DOMParser", FILES[name])


@pytest.mark.parametrize("name", ["index.html", "docs.html"])
def test_pages_hold_no_inline_script_or_style(name: str) -> None:
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", FILES[name])
