"""What a reader learns of its own scores, and the collection that a reranker is tuned on."""

import json
from pathlib import Path

from models.folder import open_model_folder
from models.training.calibrate import calibrate_reader
from models.training.collection import write_collection
from models.training.data import LabelledQuestion, read_beir
from tests.conftest import TinyModels

QUESTIONS = [
    LabelledQuestion("q1", "t", "the keeper was in the tower", "who was it", ((22, "tower"),), "qed_train"),
    LabelledQuestion("q2", "t", "lima is the capital of peru", "what is it", ((0, "lima"),), "qamr_dev"),
    LabelledQuestion("q3", "t", "bees in porto", "where is the ship", (), "qed_train"),
]


def test_a_reader_calibrates_to_a_finite_threshold_with_its_origin(tiny_models: TinyModels) -> None:
    calibration = calibrate_reader(open_model_folder(str(tiny_models.reader), "reader"), QUESTIONS, origin="three")
    assert calibration.origin == "three"
    assert abs(calibration.threshold) < 1e6
    assert calibration.margin_weight > 0


def test_questions_become_a_collection_that_reads_back(tmp_path: Path) -> None:
    assert write_collection(QUESTIONS, ["a distractor"], tmp_path) == 1
    collection = read_beir(tmp_path, "dev")
    assert collection.judgements == {"q1": {"p0": 1}}
    assert collection.queries == {"q1": "who was it"}
    assert len((tmp_path / "corpus.jsonl").read_text().splitlines()) == 4
    assert json.loads((tmp_path / "corpus.jsonl").read_text().splitlines()[3])["text"] == "a distractor"
