"""Parsers of arguments, and the groups of arguments that commands share."""

import argparse
import json
import math
import re
import sys

from fastm4n.cli._data import FORMATS
from fastm4n.cli._models import ESTIMATORS, KERNELS_WITH_GAMMA

SURROGATES = ("max_min", "max_margin", "log")
COSTS = ("zero_one", "absolute", "squared")
# the kernels that are positive semidefinite on standardised features
KERNELS = ("linear", "rbf", "laplacian", "poly", "cosine")

READING_HELP = f"""\
formats of DATA, by the end of its name, without .gz, .bz2 or .xz; --format overrides:
{"".join(kind.help for kind in FORMATS.values())}\
Text may be compressed by gzip, bzip2 or xz. - is stdin (with --format, or that of the model).
The name of an embedded data set (fastm4n datasets) means that data set. A file of that name is
./NAME.
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
    """A parser of the numbers of one kind that `accepts` takes. `what` names them in errors."""

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
_ratio = _number(float, lambda value: 0 <= value < 1, "a number from 0 to less than 1")
count = _number(int, lambda value: value >= 1, "an integer >= 1")
whole = _number(int, lambda value: value >= 0, "an integer >= 0")
_seed = _number(int, lambda value: 0 <= value < 2**32, "an integer from 0 to 2**32 - 1")


def _gamma(text):
    try:
        return text if text in ("scale", "auto") else positive(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not 'scale', 'auto' or a number > 0") from None


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


def _scheme(text):
    from fastm4n.base.schemes import RULES

    if text not in RULES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(RULES)}")
    return text


def _delimiter(text):
    text = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if len(text) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one character, 'tab' or 'space'")
    return text


def add_command(commands, name, module):
    """Add the parser of a command, whose module has `add`, `run`, and the help as docstring."""
    text = module.__doc__ or ""  # none under python -OO
    description, _, examples = text.partition("examples:\n")
    summary = text.partition(".")[0]
    parser = commands.add_parser(
        name, formatter_class=HelpFormatter, help=summary[:1].lower() + summary[1:],
        description=description, epilog=f"examples:\n{examples}\n{EXIT_CODES}")
    parser.set_defaults(run=module.run)
    module.add(parser)


def add_model_file(parser):
    parser.add_argument("model", metavar="MODEL", help="file of the model")


def add_data(parser, *, fitted, nargs=None, default=None):
    """The arguments of the data and their format. A fitted model needs fewer."""
    parser.epilog = f"{READING_HELP}\n{parser.epilog}"
    group = parser.add_argument_group("data")
    group.add_argument(
        "data", metavar="DATA", nargs=nargs, default=default,
        help="a file, - for stdin, or the name of an embedded data set"
        + (f", default {default}" if default else ""))
    group.add_argument("--format", choices=tuple(FORMATS), help="format of the file")
    if fitted:
        group.add_argument(
            "--target", metavar="COLUMN", help="column of the truth, by default that of the fit")
    else:
        group.add_argument(
            "--task", choices=tuple(ESTIMATORS), help="kind of output, guessed from the data")
        group.add_argument(
            "--target", metavar="COLUMN",
            help="column to predict: its name or number, counted from 1, from the end if negative. "
            "Default of csv: the column called response, target, label or class, the only one that "
            "is not numbers, or the last one. Default of conll: the last one. Default of conllu: "
            "UPOS. Default of npz: the array y")
        group.add_argument(
            "--columns", type=_names, metavar="NAME,...",
            help="columns to predict from: names, or numbers from 1. By default all except the "
            "target, of conllu FORM")
        group.add_argument(
            "--labels", type=_names, metavar="NAME,...",
            help="columns of csv that are labels, 1 if an example has them and 0 otherwise: task "
            "multilabel")
        group.add_argument(
            "--drop", type=_names, metavar="NAME,...", help="columns of csv to leave out")
        group.add_argument(
            "--levels", type=_names, metavar="LEVEL,...",
            help="all levels of an ordered target, lowest first. By default sorted")
        group.add_argument(
            "--attributes", choices=("window", "chunking", "columns"),
            help="attributes of tokens of conll and conllu. window, the default: two tokens to "
            "either side and the word's spelling. chunking: CRFsuite's attributes. columns: only "
            "the columns")
    group.add_argument(
        "--header", choices=("yes", "no"),
        help="whether the first line of csv names the columns. Detected by default")
    group.add_argument(
        "--delimiter", type=_delimiter, metavar="C",
        help="separator of columns of csv and conll: a character, 'tab' or 'space'")
    group.add_argument(
        "--comment", metavar="TEXT", help="skip lines of conll that begin with this text")
    group.add_argument(
        "--where", type=where, metavar="ARRAY=N",
        help="of npz only the examples for which this array is N, for example split=0")
    return group


def add_constraint(group):
    group.add_argument(
        "--constraint", type=_scheme, metavar="SCHEME",
        help="predict only labels of sequences that mark spans by the rules of bio, bioes, bilou "
        "or iob1")


def add_surrogate(group, default=None):
    group.add_argument(
        "--surrogate", choices=SURROGATES, default=default,
        help="max_min (M4N), max_margin (structural SVM) or log (CRF), by default "
        + (default or "that of the estimator"))


def add_seed(group, what="seed"):
    group.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help=f"{what}, default %(default)s")


def add_max_iter(group, what="maximum number of passes over the examples"):
    group.add_argument(
        "--max-iter", type=count, default=1000, metavar="N", help=f"{what}, default %(default)s")


def add_estimator(parser):
    """The arguments of the estimator, except for its solver."""
    group = parser.add_argument_group("model")
    add_surrogate(group)
    group.add_argument(
        "--cost", choices=COSTS,
        help="cost of a mistake, default zero_one, or absolute for ordered levels")
    group.add_argument(
        "--cost-augmented", action="store_true",
        help="with --surrogate log: add the costs to the scores (softmax-margin, VCRF)")
    group.add_argument(
        "--temperature", type=positive, metavar="TAU", default=1.0,
        help="with --surrogate log: factor of the entropy, default 1")
    group.add_argument(
        "--penalty", choices=("l2", "elasticnet"),
        help="l2, the default: alpha / 2 times the squared norm of the weights. elasticnet: also "
        "their absolute values, which makes weights zero")
    group.add_argument(
        "--l1-ratio", type=_ratio, metavar="SHARE",
        help="with --penalty elasticnet: share of the absolute values, from 0 to less than 1, "
        "default 0.5")
    group.add_argument(
        "--kernel", choices=KERNELS, default="linear",
        help="kernel, default %(default)s. Sequences and graphs take linear only")
    group.add_argument(
        "--gamma", type=_gamma, metavar="NUMBER",
        help=f"coefficient of the kernels {', '.join(KERNELS_WITH_GAMMA)}: a number, 'scale' or "
        "'auto', default scale")
    group.add_argument(
        "--scale", choices=("standard", "none"),
        help="standard: features of mean 0 (except sparse ones) and variance 1 in DATA. The scaler "
        "becomes part of the model. Default for dense features of classes, levels and rankings. "
        "Not for graphs and matchings")
    group.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="any other parameter of the estimator, for example states=observed or "
        "fit_intercept=false. May be repeated")


def add_output(parser, *, progress=True):
    group = parser.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true",
        help="print the results as one JSON document, and text for people to stderr")
    group.add_argument(
        "-q", "--quiet", action="store_true",
        help="print only errors and results, no remarks" + (
            " and no progress bar (which needs tqdm, and a terminal as stderr)" if progress else ""
        ))
    return group


def add_plot(group, *, default=None):
    group.add_argument(
        "--plot", metavar="FILE",
        help="write a plot, in the format of the end of the name (png, pdf, svg, ...)"
        + (f", default {default}" if default else ""))
