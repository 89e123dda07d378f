"""``fastm4n datasets``."""

from fastm4n.cli._arguments import EMBEDDED, EXIT_CODES, READING_HELP, add_command, add_output
from fastm4n.cli._output import Report, table

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
        commands, "datasets", help="what can be read, and what needs no file",
        description=DESCRIPTION, epilog=EPILOG,
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", choices=EMBEDDED, help="an embedded data set"
    )
    add_output(parser, progress=False)
    parser.set_defaults(run=run)


def run(args):
    report = Report(args)
    if args.name is not None:
        return _one(args, report)
    report.tell("embedded, to be given as DATA by their names")
    for line in table(
        ["name", "task", "what"], [[name, *rest] for name, rest in EMBEDDED.items()]
    ):
        report.tell(f"  {line}")
    report.tell()
    report.tell(READING_HELP)
    report.tell("to be had elsewhere")
    for line in table(["name", "task", "format", "where"], [row[:4] for row in ELSEWHERE]):
        report.tell(f"  {line}")
    report.tell()
    report.tell("and read, for example, by")
    for *_, command in ELSEWHERE:
        report.tell(f"  {command}")
    report.document({
        "embedded": [
            {"name": name, "task": task, "what": what}
            for name, (task, what) in EMBEDDED.items()
        ],
        "elsewhere": [
            dict(zip(("name", "task", "format", "url", "command"), row)) for row in ELSEWHERE
        ],
    })
    return 0


def _one(args, report):
    from collections import Counter

    from fastm4n.cli._data import embedded
    from fastm4n.cli._models import n_tokens

    data = embedded(args.name)
    values = data.X.values if hasattr(data.X, "offsets") else data.X
    task, what = EMBEDDED[args.name]
    document = {
        "name": args.name, "task": task, "what": what, "n_examples": data.n_examples,
        "n_features": values.shape[-1],
    }
    if n_tokens(data) is not None:
        document["n_tokens"] = n_tokens(data)
    if task == "matchings":
        document["size"] = data.y.shape[1]
    else:
        labels = data.y.values if hasattr(data.y, "offsets") else data.y
        counts = Counter(labels.tolist())
        document["counts"] = {str(label): counts[label] for label in sorted(counts)}
    for key, value in document.items():
        if key == "counts":
            value = ", ".join(f"{label}: {n}" for label, n in list(value.items())[:26])
            value += ", ..." if len(document["counts"]) > 26 else ""
        report.tell(f"{key.replace('_', ' '):<12}{value}")
    report.document(document)
    return 0
