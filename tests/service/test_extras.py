"""The extras `cpu` and `gpu` exclude each other, and start-up says so in one sentence."""

import pytest

from service.extras import StartupError, check_extras, check_installed


def test_this_environment_holds_one_extra() -> None:
    check_extras()


@pytest.mark.parametrize("installed", [{"onnxruntime", "faiss-cpu"}, {"onnxruntime-gpu", "faiss-gpu"}])
def test_one_whole_extra_is_right(installed: set[str]) -> None:
    check_installed(installed)


@pytest.mark.parametrize(
    ("installed", "sentence"),
    [
        (set(), "Neither of the extras"),
        ({"onnxruntime", "faiss-cpu", "onnxruntime-gpu"}, "exclude each other, but onnxruntime, faiss-cpu, onnxrun"),
        ({"onnxruntime", "faiss-gpu"}, "exclude each other"),
        ({"faiss-gpu"}, "`gpu` is incomplete, onnxruntime-gpu is missing"),
    ],
)
def test_anything_else_is_refused(installed: set[str], sentence: str) -> None:
    with pytest.raises(StartupError, match=sentence):
        check_installed(installed)
