"""Add to a transformers folder what sentence-transformers makes of it: ONNX, ONNX in qint8, OpenVINO.

python export_sentence_transformers.py FOLDER CrossEncoder|SentenceTransformer
"""

import sys
from pathlib import Path

import sentence_transformers
from sentence_transformers.backend import export_dynamic_quantized_onnx_model

QINT8 = "onnx/model_qint8_avx512_vnni.onnx"
OPENVINO = "openvino/openvino_model.xml"


def main() -> None:
    """Export, quantise and save, each as its documentation has it."""
    folder = sys.argv[1]
    loader = getattr(sentence_transformers, sys.argv[2])
    if not (Path(folder) / QINT8).exists():
        model = loader(folder, device="cpu", backend="onnx", local_files_only=True)
        model.save_pretrained(folder)
        export_dynamic_quantized_onnx_model(model, "avx512_vnni", folder)
    if not (Path(folder) / OPENVINO).exists():
        loader(folder, device="cpu", backend="openvino", local_files_only=True).save_pretrained(folder)


if __name__ == "__main__":
    main()
