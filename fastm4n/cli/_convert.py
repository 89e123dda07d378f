"""Convert a model file of CRFsuite to a model of fastm4n.

Any program and algorithm may have trained it: 'crfsuite learn', python-crfsuite or
sklearn-crfsuite. The new model gives the same labels and probabilities as CRFsuite with the old
file. Load it by 'fastm4n predict' and 'evaluate', or in Python by fastm4n.load_model. Nothing in a
file is executed.

examples:
  fastm4n convert ner.crfsuite --model ner.fm4n
      afterwards: fastm4n predict ner.fm4n sentences.crfsuite --probabilities
  fastm4n convert old.model --encoding latin-1 --model old.fm4n
      a model whose labels and attributes are not UTF-8
"""

from fastm4n.cli import _models
from fastm4n.cli._arguments import add_output
from fastm4n.cli._output import Report, check_output, check_overwriting, naming


def add(parser):
    group = parser.add_argument_group("model")
    group.add_argument("file", metavar="FILE", help="model file of CRFsuite")
    group.add_argument(
        "--encoding", default="utf-8", metavar="NAME",
        help="encoding of the names of labels and attributes, default utf-8")
    add_output(parser, progress=False).add_argument(
        "--model", metavar="FILE", required=True, help="write the model to this file")


def run(args):
    check_overwriting([("FILE", args.file)], [("--model", args.model)])
    check_output("--model", args.model)
    from fastm4n.crfsuite import load_model
    from fastm4n.models import save_model

    report = Report(args, writes=True)
    tagger = load_model(args.file, encoding=args.encoding)
    reading = {"format": "crfsuite", "attributes": "crfsuite"}
    with naming("--model", args.model):
        save_model(tagger, args.model, metadata={
            "task": tagger._task, "reading": reading, "converted_from": "crfsuite"})
    labels = tagger.classes_.tolist()
    report.tell(
        f"{args.file}: {len(labels)} labels, {tagger.n_features_in_} attributes, "
        f"{tagger.n_nonzero_} weights of attributes")
    report.tell(_models.described(tagger))
    report.tell(f"model: {args.model}")
    report.finish({
        "task": tagger._task, "file": args.file, **_models.outcome(tagger), "labels": labels,
        "n_nonzero": tagger.n_nonzero_, "model": args.model,
    })
    return 0
