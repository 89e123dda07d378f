"""``fastm4n datasets``."""

from fastm4n.cli._arguments import EMBEDDED, EXIT_CODES, READING_HELP, add_command, add_output
from fastm4n.cli._output import Report

DESCRIPTION = """\
List the data sets that need no file, the formats that are read, and where the data sets of the
literature are to be had; nothing is fetched. With a name, tell what is in that data set.
"""

EPILOG = f"""\
examples:
  fastm4n datasets
  fastm4n datasets digits
  fastm4n fit digits --model digits.fm4n

{EXIT_CODES}"""

# name, task, format, where it is to be had, and how it is read
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


def add(commands):
    parser = add_command(
        commands, "datasets", run, "what can be read, and what needs no file", DESCRIPTION, EPILOG)
    parser.add_argument(
        "name", metavar="NAME", nargs="?", choices=EMBEDDED, help="an embedded data set"
    )
    add_output(parser, progress=False)


def run(args):
    report = Report(args)
    if args.name is not None:
        return _one(args, report)
    report.result("embedded, to be given as DATA by their names")
    report.table(["name", "task", "what"], [[name, *rest] for name, rest in EMBEDDED.items()], "  ")
    report.result()
    report.result(READING_HELP)
    report.result("to be had elsewhere")
    report.table(["name", "task", "format", "where"], [row[:4] for row in ELSEWHERE], "  ")
    report.result()
    report.result("and read, for example, by")
    for *_, command in ELSEWHERE:
        report.result(f"  {command}")
    report.finish({
        "embedded": [
            {"name": name, "task": task, "what": what}
            for name, (task, what) in EMBEDDED.items()
        ],
        "elsewhere": [
            dict(zip(("name", "task", "format", "url", "command"), row, strict=True))
            for row in ELSEWHERE
        ],
    })
    return 0


def _one(args, report):
    from fastm4n.cli import _info
    from fastm4n.cli._data import embedded

    document = {**_info.of_data(embedded(args.name)), "what": EMBEDDED[args.name][1]}
    _info.tell(report, document)
    report.finish(document)
    return 0
