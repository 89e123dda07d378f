"""Parsers of arguments, and the groups of arguments that commands share."""

import argparse
import json
import math
import re
import sys

SURROGATES = ("max_min", "max_margin", "log", "boost")
PENALTIES = ("l2", "elasticnet")
COSTS = ("zero_one", "absolute", "squared")
# those that are positive semidefinite on standardised features
KERNELS = ("linear", "rbf", "laplacian", "poly", "cosine")
KERNELS_WITH_GAMMA = ("rbf", "laplacian", "poly")
TASKS = ("classes", "ordered", "sequences", "graphs", "rankings", "matchings", "multilabel")
FORMATS = ("svmlight", "csv", "conll", "conllu", "crfsuite", "npz", "svmhmm", "svmrank")
ATTRIBUTES = ("window", "chunking", "columns")
SCALES = ("standard", "none")

# name, task and what it is, of the data sets that need no file
EMBEDDED = {
    "digits": ("classes", "handwritten digits, 8 x 8 pixels (scikit-learn)"),
    "iris": ("classes", "three species of iris (scikit-learn)"),
    "wine": ("classes", "three cultivars of wine (scikit-learn)"),
    "breast_cancer": ("classes", "malignant or benign (scikit-learn)"),
    "diabetes": ("ordered", "progression of diabetes in five levels (scikit-learn)"),
    "digit_lines": ("sequences", "the digits in lines of eleven, in the order of the data set"),
    "simulated_rankings": ("rankings", "linear utilities of four items, with noise"),
    "simulated_images": ("graphs", "grids of pixels: a noisy image of a disc, inside or outside"),
    "simulated_points": ("matchings", "six points found again in another frame, with noise"),
}

READING_HELP = """\
formats of DATA, guessed from the end of its name, without .gz, .bz2 or .xz; --format overrides:
  .csv .tsv                 csv: a table of numbers and a target; a first line that names the
                            columns is detected
  .svm .svmlight .libsvm    svmlight: LABEL index:value ...; with qid:N after the label, the lines
                            of one N are a sequence; LABEL,LABEL,... are sets of labels
  .hmm .svmhmm              svmhmm: SVM-hmm's TAG qid:N index:value ..., tags numbers or words
  .rank .svmrank            svmrank: SVM-rank's TARGET qid:N index:value ..., documents of queries
  .conll .txt .iob .bio     conll: a token on each line, columns, a blank line after a sentence
  .conllu                   conllu: Universal Dependencies
  .crfsuite                 crfsuite: LABEL and attributes, separated by tabs
  .npz                      npz: arrays X and y; and lengths or offsets of sequences;
                            X (n, M, M, d) and y (n, M) of matchings; of graphs what
                            Graphs.save writes, with y
Text may be compressed by gzip, bzip2 or xz; - is stdin (with --format, or that of the model).
The name of an embedded data set (fastm4n datasets) is taken as such; a file of the same name is
given as ./NAME.
"""

EXIT_CODES = """\
exit codes: 0 done, 1 failure, 2 bad arguments, 130 interrupted, 141 the reader of stdout has left
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message):
        if message == "the following arguments are required: DATA":
            message = "DATA is missing: a file, - for stdin, or an embedded data set such as iris"
        self.exit(2, f"{self.prog}: error: {message} (see '{self.prog} --help')\n")

    def _print_message(self, message, file=None):
        if file is sys.stdout:  # help that cannot be written is a failure, which argparse hides
            file.write(message)
        else:
            super()._print_message(message, file)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog, **kwargs):
        kwargs.setdefault("max_help_position", 28)
        super().__init__(prog, **kwargs)


def _number(kind, accepts, what):
    """A parser of numbers of one kind that `accepts` takes; its errors say `what` they are."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not accepts(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return parse


positive = _number(float, lambda value: 0 < value < math.inf, "a number > 0")
relative_gap = _number(
    float, lambda value: 0 < value < 1, "a number > 0 and < 1: it is relative to the objective "
    "at zero weights, which have a gap of at most 1 without any fit")
fraction = _number(float, lambda value: 0 < value < 1, "a number between 0 and 1")
ratio = _number(float, lambda value: 0 <= value < 1, "a number from 0 to less than 1")
count = _number(int, lambda value: value >= 1, "an integer >= 1")
whole = _number(int, lambda value: value >= 0, "an integer >= 0")
seed = _number(int, lambda value: 0 <= value < 2**32, "an integer from 0 to 2**32 - 1")


def gamma(text):
    if text in ("scale", "auto"):
        return text
    try:
        return positive(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither 'scale' nor 'auto' nor a number > 0"
        ) from None


def _names(text):
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names, NAME,NAME,...")
    return names


def _setting(text):
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def where(text):
    match = re.fullmatch(r"(\w+)=(-?[0-9]+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not ARRAY=INTEGER")
    return match[1], int(match[2])


def _delimiter(text):
    text = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if len(text) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one character, 'tab' or 'space'")
    return text


def add_command(commands, name, run, help, description, epilog):
    parser = commands.add_parser(
        name, formatter_class=HelpFormatter, help=help, description=description, epilog=epilog)
    parser.set_defaults(run=run)
    return parser


def add_data(parser, *, fitted, nargs=None, default=None):
    """The arguments that say what is read, and how; for a fitted model fewer."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "data", metavar="DATA", nargs=nargs, default=default,
        help="a file, - for stdin, or the name of an embedded data set"
        + (f"; default {default}" if default else ""),
    )
    group.add_argument("--format", choices=FORMATS, help="format of the file")
    if not fitted:
        group.add_argument("--task", choices=TASKS, help="what is predicted, guessed from the data")
    group.add_argument(
        "--target", metavar="COLUMN",
        help="what is to be predicted: a column's name or number, counted from 1, from the end if "
        "negative; by default of csv the column that is called response, target, label or class, "
        "the only one that is not numbers, or the last one; of conll the last one; of conllu a "
        "field, by default UPOS; of npz an array, by default y"
        if not fitted else "the column of the truth; by default that of the fit",
    )
    if not fitted:
        group.add_argument(
            "--columns", type=_names, metavar="NAME,...",
            help="columns to predict from: names, or numbers from 1; by default all but the "
            "target, of conllu FORM",
        )
        group.add_argument(
            "--labels", type=_names, metavar="NAME,...",
            help="columns of csv that are labels, 1 where an example has them and 0 elsewhere: "
            "task multilabel",
        )
        group.add_argument(
            "--drop", type=_names, metavar="NAME,...", help="columns of csv to leave out",
        )
        group.add_argument(
            "--levels", type=_names, metavar="LEVEL,...",
            help="all levels of an ordered target, lowest first; by default sorted",
        )
        group.add_argument(
            "--attributes", choices=ATTRIBUTES,
            help="what tokens of conll and conllu are described by: a window of two to either side "
            "and the word's spelling; CRFsuite's attributes for chunking; or their columns alone; "
            "default window",
        )
    group.add_argument(
        "--header", choices=("yes", "no"),
        help="whether the first line of csv names the columns; by default that is detected",
    )
    group.add_argument(
        "--delimiter", type=_delimiter, metavar="C",
        help="what separates columns of csv and conll: a character, 'tab' or 'space'",
    )
    group.add_argument(
        "--comment", metavar="TEXT", help="lines of conll that begin with it are left out"
    )
    group.add_argument(
        "--where", type=where, metavar="ARRAY=N",
        help="of npz only the examples at which this array is N, for example split=0",
    )
    return group


def add_surrogate(group):
    group.add_argument(
        "--surrogate", choices=SURROGATES, default="max_min",
        help="max_min (M4N), max_margin (structural SVM), log (CRF) or boost (VStructBoost), "
        "default %(default)s",
    )


def add_seed(group, what="seed"):
    group.add_argument(
        "--seed", type=seed, default=0, metavar="N", help=f"{what}, default %(default)s"
    )


def add_max_iter(group, what="most passes over the examples"):
    group.add_argument(
        "--max-iter", type=count, default=1000, metavar="N", help=f"{what}, default %(default)s"
    )


def add_estimator(parser):
    """The arguments that say what is fitted, and how long."""
    group = parser.add_argument_group("model")
    add_surrogate(group)
    group.add_argument(
        "--cost", choices=COSTS,
        help="what a mistake costs, default zero_one, or absolute for ordered levels",
    )
    group.add_argument(
        "--cost-augmented", action="store_true",
        help="with --surrogate log: the costs are added to the scores (softmax-margin, VCRF)",
    )
    group.add_argument(
        "--temperature", type=positive, metavar="TAU", default=1.0,
        help="with --surrogate log: what the entropy is multiplied by, default 1",
    )
    group.add_argument(
        "--penalty", choices=PENALTIES,
        help="l2: alpha / 2 times the squared norm of the weights, the default; elasticnet: also "
        "their absolute values, which makes weights zero",
    )
    group.add_argument(
        "--l1-ratio", type=ratio, metavar="SHARE",
        help="with --penalty elasticnet the share of the absolute values, from 0 to less than 1, "
        "default 0.5",
    )
    group.add_argument(
        "--kernel", choices=KERNELS, default="linear",
        help="kernel, default %(default)s; sequences and graphs take linear only",
    )
    group.add_argument(
        "--gamma", type=gamma, metavar="NUMBER",
        help="coefficient of the rbf, laplacian and poly kernels: a number, 'scale' or 'auto', "
        "default scale",
    )
    group.add_argument(
        "--scale", choices=SCALES,
        help="standard: features of mean 0 (not sparse ones) and variance 1 in DATA, which goes "
        "into the model; by default where features are dense and outputs are classes, levels or "
        "rankings; not for graphs and matchings",
    )
    group.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="any other parameter of the estimator, for example states=observed or "
        "fit_intercept=false; may be repeated",
    )


def add_solver(parser):
    group = parser.add_argument_group("solver")
    group.add_argument(
        "--tol", type=relative_gap, default=1e-3, metavar="GAP",
        help="relative gap at which a fit ends: the certified duality gap as a share of the "
        "objective at zero weights, default %(default)g",
    )
    add_max_iter(group)
    add_seed(group)
    return group


def add_output(parser, *, progress=True):
    group = parser.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true",
        help="print the results as one JSON document; what is for people goes to stderr",
    )
    group.add_argument(
        "-q", "--quiet", action="store_true",
        help="print errors and results only: no remarks" + (
            ", no progress bar (there is none either where stderr is no terminal or tqdm is "
            "missing)" if progress else ""
        ),
    )
    return group


def add_plot(group, *, default=None):
    """The option of every command that makes a plot."""
    group.add_argument(
        "--plot", metavar="FILE",
        help="write a plot, in the format that the name ends with (png, pdf, svg, ...)"
        + (f"; default {default}" if default else ""),
    )
