"""Tune what a model folder says of its own scores, on labelled dev data, and write it into model.json.

Reader: the no-answer threshold of best F1 over single passages, and Platt weights for "this span is right". Answerable
and unanswerable questions weigh the same in sum: their shares in the dev file are an accident of how it was made.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from models.calibration import fit_logistic
from models.evaluation import best_threshold, token_f1
from models.folder import AnswerCalibration, ModelFolder, open_model_folder, write_settings
from models.reader import Reader
from models.session import available_cpus
from models.training.data import LabelledQuestion, read_questions

_RIGHT_F1 = 0.5


def calibrate_reader(folder: ModelFolder, questions: Sequence[LabelledQuestion], *, origin: str) -> AnswerCalibration:
    """Return the threshold and weights that fit the questions, each read on its own passage."""
    reader = Reader(folder, n_threads=available_cpus())
    readings = [reader.read(question.query, [question.passage], n_best=1) for question in questions]
    margins = np.array([r.decision.margin if r.decision.margin is not None else -np.inf for r in readings])
    truths = [[text for _, text in question.answers] for question in questions]
    f1 = np.array([token_f1(r.answers[0].text if r.answers else "", t) for r, t in zip(readings, truths, strict=True)])
    unanswered = np.array([float(not truth) for truth in truths])
    shares = np.where(unanswered > 0, 0.5 / max(1, unanswered.sum()), 0.5 / max(1, (1 - unanswered).sum()))
    threshold, _ = best_threshold(margins, f1 * shares, unanswered * shares)
    known = np.isfinite(margins)
    weight, bias = fit_logistic(margins[known, None], f1[known] >= _RIGHT_F1)
    return AnswerCalibration(
        threshold=round(threshold, 4),
        margin_weight=round(float(weight), 6),
        margin_bias=round(float(bias), 6),
        origin=origin,
    )


def main() -> None:
    """Calibrate a reader folder in place and print what was found."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", required=True, help="a bundled name or a model folder")
    parser.add_argument("--data", type=Path, required=True, help="labelled questions, JSON Lines")
    arguments = parser.parse_args()
    folder = open_model_folder(arguments.model, "reader")
    calibration = calibrate_reader(folder, read_questions(arguments.data), origin=arguments.data.name)
    write_settings(folder.path, folder.settings.model_copy(update={"answer": calibration}))
    print(calibration)  # noqa: T201


if __name__ == "__main__":
    main()
