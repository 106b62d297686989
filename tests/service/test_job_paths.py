"""What a job may read: nothing outside one folder, whichever way it is named."""

from pathlib import Path

import pytest

from service.job_paths import leaving_link, located, real_folder

OUTSIDE = [
    *("..", "../secret.txt", "../root-2", "../root-2/secret.txt", "docs/../../secret.txt", "in/../../../secret.txt"),
    *("out", "out/secret.txt", "out.txt", "/etc/passwd", "//etc/passwd", "file:///etc/passwd", "~/x"),
    *("nothing", "docs/fog.txt/x", "loop", "nowhere", "a\0b", "a" * 5000),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with documents in it, links in and out, and a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2" / "secret.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "docs" / "fog.txt").write_text("fog")
    (root / "docs" / "deep" / "boat.txt").write_text("boat")
    (root / "out").symlink_to(tmp_path)
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "in").symlink_to("docs/deep")
    (root / "loop").symlink_to("loop")
    (root / "nowhere").symlink_to("nothing")
    return real_folder(root)


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("docs", "docs"),
        ("docs/", "docs"),
        (".", "."),
        ("docs/fog.txt", "docs/fog.txt"),
        ("docs/../docs/fog.txt", "docs/fog.txt"),
        ("in", "docs/deep"),
        ("in/../fog.txt", "docs/fog.txt"),  # as the kernel reads it: a link is followed before its `..`
    ],
)
def test_what_is_below_the_root_is_found(root: Path, source: str, path: str) -> None:
    assert located(root, source) == root / path


@pytest.mark.parametrize("source", OUTSIDE)
def test_what_is_not_or_lies_outside_is_not_found_and_the_two_look_alike(root: Path, source: str) -> None:
    assert located(root, source) is None


def test_a_link_to_a_file_outside_is_found_at_any_depth(root: Path) -> None:
    assert leaving_link(root, root / "docs") is None
    (root / "docs" / "inner.txt").symlink_to(root / "docs" / "fog.txt")
    (root / "docs" / "folder").symlink_to("/etc")  # which sources don't follow
    (root / "docs" / ".hidden").symlink_to("/etc/passwd")  # nor read
    assert leaving_link(root, root / "docs") is None
    for out in ("/etc/passwd", "../../../secret.txt", "../../../root-2/secret.txt"):
        link = root / "docs" / "deep" / "link.txt"
        link.symlink_to(out)
        assert leaving_link(root, root / "docs") == link
        link.unlink()
