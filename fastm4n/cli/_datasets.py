"""List the embedded data sets and the formats of files.

The list also names public data sets and where to download them. Nothing is downloaded. With a
NAME, describe that embedded data set.

examples:
  fastm4n datasets
  fastm4n datasets digits
  fastm4n fit digits --model digits.fm4n
"""

from fastm4n.cli import _data, _info
from fastm4n.cli._arguments import READING_HELP, add_output
from fastm4n.cli._output import Report

# name, task, format, place, and a command that reads it
ELSEWHERE = (
    (
        "CoNLL-2000", "sequences", "conll", "https://www.clips.uantwerpen.be/conll2000/chunking/",
        "fastm4n fit train.txt.gz --attributes chunking",
    ),
    (
        "Universal Dependencies", "sequences", "conllu", "https://universaldependencies.org/",
        "fastm4n fit en_ewt-ud-train.conllu",
    ),
    (
        "LIBSVM data", "classes", "svmlight",
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/",
        "fastm4n fit satimage.scale --format svmlight",
    ),
    (
        "Ordinal regression data", "ordered", "csv",
        "https://github.com/gagolews/ordinal-regression-data",
        "fastm4n fit abalone_ord.csv --target response --task ordered",
    ),
    (
        "Label ranking data", "rankings", "csv",
        "https://github.com/akorba/Structured_Approach_Label_Ranking",
        "fastm4n fit glass.csv --task rankings",
    ),
)


def add(parser):
    parser.add_argument(
        "name", metavar="NAME", nargs="?", choices=_data.EMBEDDED, help="an embedded data set")
    add_output(parser, progress=False)


def run(args):
    report = Report(args)
    if args.name is not None:
        document = {
            **_info.of_data(_data.embedded(args.name)), "what": _data.EMBEDDED[args.name][1]}
        _info.tell(report, document)
        report.finish(document)
        return 0
    embedded = [[name, *rest] for name, rest in _data.EMBEDDED.items()]
    report.result("embedded data sets, used as DATA by name")
    report.table(["name", "task", "what"], embedded, "  ")
    report.result()
    report.result(READING_HELP)
    report.result("data sets elsewhere")
    report.table(["name", "task", "format", "where"], [row[:4] for row in ELSEWHERE], "  ")
    report.result()
    report.result("commands that read them")
    for *_, command in ELSEWHERE:
        report.result(f"  {command}")
    report.finish({
        "embedded": [dict(zip(("name", "task", "what"), row, strict=True)) for row in embedded],
        "elsewhere": [
            dict(zip(("name", "task", "format", "url", "command"), row, strict=True))
            for row in ELSEWHERE],
    })
    return 0
