"""Runs in an environment of the official client: reads images with exported models, prints one JSON line.

Argument: a JSON object with ``version`` (3 or 2), ``rec`` and ``det`` (folders), ``lines`` and ``pages`` (files), and
the clients' keyword arguments as ``export.json`` gives them: ``rec_arguments``, ``det_arguments``.
"""

import zlib  # noqa: F401  Paddle 2.6.2 brings an old zlib of its own: Python's must be there first

# isort: split
import json
import os
import sys


def by_3(job):
    os.environ["PADDLE_PDX_DISABLE_MODEL_SOURCE_CHECK"] = "True"  # no look at the model hosters
    from paddleocr import PaddleOCR, TextRecognition

    arguments = dict(job["rec_arguments"])
    line = TextRecognition(
        model_dir=job["rec"],
        input_shape=arguments.get("text_rec_input_shape"),
        enable_mkldnn=arguments["enable_mkldnn"],
    )
    lines = [(r["rec_text"], float(r["rec_score"])) for r in line.predict(job["lines"], batch_size=4)]
    ocr = PaddleOCR(
        text_detection_model_dir=job["det"],
        text_recognition_model_dir=job["rec"],
        use_doc_orientation_classify=False,
        use_doc_unwarping=False,
        use_textline_orientation=False,
        text_rec_score_thresh=0.0,
        **{**job["det_arguments"], **arguments},
    )
    pages = []
    for page in ocr.predict(job["pages"]):
        pages.append({"boxes": [p.tolist() for p in page["dt_polys"]], "texts": list(page["rec_texts"])})
    return {"lines": lines, "pages": pages}


def by_2(job):
    from paddleocr import PaddleOCR

    arguments = {**job["det_arguments"], **job["rec_arguments"]}
    then = arguments.pop("then", {})
    ocr = PaddleOCR(
        use_onnx=True,
        det_model_dir=f"{job['det']}/inference.onnx",
        rec_model_dir=f"{job['rec']}/inference.onnx",
        rec_char_dict_path=f"{job['rec']}/dict.txt",
        use_angle_cls=False,
        drop_score=0.0,
        show_log=False,
        **arguments,
    )
    for path, value in then.items():
        part, name = path.split(".")
        setattr(getattr(ocr, part), name, value)
    lines = [ocr.ocr(file, det=False, cls=False)[0][0] for file in job["lines"]]
    pages = []
    for file in job["pages"]:
        found = ocr.ocr(file, cls=False)[0] or []
        pages.append({"boxes": [row[0] for row in found], "texts": [row[1][0] for row in found]})
    return {"lines": [(text, float(score)) for text, score in lines], "pages": pages}


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print("\nREAD " + json.dumps((by_3 if wanted["version"] == 3 else by_2)(wanted)))
