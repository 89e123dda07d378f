"""What reads files of strangers: a target for each reader, with small files to begin from."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from mutations import (
    damaged,
    damaged_arrays_file,
    damaged_folder,
    damaged_npz,
)
from sklearn.pipeline import make_pipeline

import fastm4n
from fastm4n import (
    Graphs,
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    Sequences,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
    checkpointing,
    datasets,
    regularization_path,
    save_model,
)
from fastm4n.automata import Automaton
from fastm4n.cli import main
from fastm4n.data._preferences import as_preferences
from fastm4n.data._rankings import as_places
from fastm4n.factors import CountFactor
from fastm4n.penalties import ElasticNet

# what a reader may raise, with a message; all else is a finding
ALLOWED = (ValueError, OSError)


class Target:
    """A reader.

    `prepare` makes what cases begin from, once; `make(rng)` makes the contents of a case: bytes, or
    bytes by name, of a generator of random numbers alone; `run(case, path)` reads them, and says
    whether it took them. Anything but `ALLOWED` is a finding.
    """

    allowed = ALLOWED
    seconds, mebibytes = 5.0, 256

    def prepare(self):
        self.seeds = []

    def make(self, rng):
        return damaged(rng, rng.choice(self.seeds), rng.choice(self.seeds))


class Texts(Target):
    """A reader of text, which takes a file object."""

    def __init__(self, seeds, words, *readers):
        self.texts, self.words, self.readers = seeds, words, readers

    def prepare(self):
        self.seeds = [text.encode() for text in self.texts]

    def make(self, rng):
        content = damaged(rng, rng.choice(self.seeds), rng.choice(self.seeds), self.words)
        if rng.random() < 0.05:
            content = rng.choice((gzip.compress, bz2.compress, lzma.compress))(content)
            if rng.random() < 0.5:
                content = damaged(rng, content)
        # which reader takes it, and how, is part of the case
        return bytes([rng.randrange(len(self.readers))]) + content

    def run(self, case, path):
        self.readers[case[0] % len(self.readers)](io.BytesIO(case[1:]))


def _rankings(stream):
    lines = stream.read().decode("utf-8", "ignore").splitlines()
    # strings of many names are orders of many pairs
    if sum(line.count(">") + line.count("=") for line in lines) < 1000:
        as_preferences(lines)
    as_places(lines)


def _expression(stream):
    labels = ["a", "b", "B-x", "."]
    automaton = Automaton.from_regex(stream.read().decode("utf-8", "ignore"), labels)
    automaton.accepts(labels)


def _vectorised(stream):
    SequenceVectorizer().fit_transform(datasets.load_crfsuite(stream).sequences)


def _all(iterator, **options):
    return lambda stream: list(iterator(stream, batch_size=2, **options))


CONLL = (
    "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n-DOCSTART- -X- O O\n\nPeter NNP B-NP B-PER\n"
    "Blackburn NNP I-NP I-PER\n\n", "a\tB-x\r\nb\tI-x\r\n\r\n\r\nc\tO\r\n", "# c\nä B\n")
CONLLU = (
    "# sent_id = 1\n1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\n1\tvamos\tir\tVERB\t_\tA=B\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_\n2.1\tx\tx\tX\t_\t_\t_\t_\t1:d\t_\n\n"
    "1\tal\ta\tADP\t_\t_\t0\troot\t_\tSpaceAfter=No\n\n",)
CRFSUITE = (
    "B-NP\tw[0]=the\tpos=DT\t__BOS__\nI-NP\tw[0]=cat:0.5\tx\\:y:2\n\nO\tw=\\\\:-1e-3\n\n",
    "O\tlength:3\tbos\n\nB\ta\n")
SVMLIGHT = (
    "1 qid:3 1:0.5 3:1 # c\n2 qid:3 2:-1e-1\n\n1 qid:1 1:1\n", "-1 0:1 5:2.5\n+1 4:1\n",
    "2,7 1:0.5 3:1\n7 2:1\n 1:1\n", "1.5 7:0.25\n")
TABLES = (
    'kind,u,v\na,0.5,1\n"b, c",-2,0\n', "u;v;w\n1,5;2;3\n4;5,25;6\n", "u,v,ranking\n0.5,1,b>a>c\n"
    "-2,0,a>b>c\n", "a\tb\n1\t2\n", "\ufeff1,2,x\n3,4,y\n")
SEPARATORS = (b"\n", b"\r\n", b" ", b"\t", b",", b":", b"#", b'"', b"\n\n", b"\xef\xbb\xbf", b"\0")

READERS = {
    "conll": Texts(
        CONLL, (*SEPARATORS, b"-DOCSTART-", b"\xc2\xa0", b"\xe2\x80\xa8"), datasets.load_conll,
        lambda stream: datasets.load_conll(
            stream, label_column=None, delimiter="\t", comment="#", keep_empty=True),
        _all(datasets.iter_conll)),
    "conllu": Texts(
        CONLLU, (*SEPARATORS, b"_", b"3-4", b"8.1", b"0-0", b"\t_\t_"), datasets.load_conllu,
        lambda stream: datasets.load_conllu(
            stream, fields=["FORM", "FEATS"], label="DEPREL", keep_empty=True)),
    "crfsuite": Texts(
        CRFSUITE, (*SEPARATORS, b"\\", b"\\:", b"::", b":1e308", b":nan"), datasets.load_crfsuite,
        _all(datasets.iter_crfsuite), _vectorised),
    "svmlight": Texts(
        SVMLIGHT, (*SEPARATORS, b"qid:", b"1:", b":1", b",", b"2147483648:1", b"qid:-9"),
        datasets.load_svmlight, datasets.load_svmlight_sequences,
        datasets.load_svmlight_multilabel,
        _all(datasets.iter_svmlight, n_features=7, zero_based=False),
        lambda stream: datasets.load_svmlight(stream, n_features=7, zero_based=False)),
    "csv": Texts(
        TABLES, (*SEPARATORS, b";", b'""', b"nan", b"=", b">"), datasets.load_csv,
        datasets.load_label_ranking,
        lambda stream: datasets.load_csv(stream, target=None, delimiter=";"),
        lambda stream: datasets.load_csv(stream, target="kind", columns=["v", 1])),
    "rankings": Texts(
        ("b>a>c\nc>b>a\n", "x > y\ny>x\n", "a\n"), (b">", b"=", b" ", b"\n", b"a", b"\xe2\x80\xa8"),
        _rankings),
    "expressions": Texts(
        ("O* (B-x I*)? O*".replace("I", "b").replace("O", "a"), "(a '.' | [^a '.']){2,3}", "a{,3} .+",
         "((a|b)* a (a|b)){2}"),
        (b"(", b")", b"*", b"+", b"?", b"{2,}", b"{9,10}", b"{,500}", b"[", b"]", b"^", b"|", b"'",
         b".", b"a", b"{1000}", b"(a|b)*", b"{20}"),
        _expression),
}


# --------------------------------------------------------------------------- model files


def _sequences(rng, n=3):
    X = [np.round(rng.normal(size=(length, 2)), 2) for length in (2, 1, 3)[:n]]
    return X, [rng.integers(2, size=len(x)) for x in X]


def _graphs(rng, *, factors=None, sparse=False):
    nodes = np.round(rng.normal(size=(5, 2)), 2)
    X = Graphs(
        sp.csr_array(nodes) if sparse else nodes, np.array([[0, 1], [1, 2], [0, 1]]), [0, 3, 5],
        [0, 2, 3], edge_features=np.ones((3, 1)), factors=factors)
    return X, Sequences(rng.integers(2, size=5), X.node_offsets)


def _models():
    """Fitted estimators of all kinds, and what they predict."""
    rng = np.random.default_rng(0)
    X, labels = np.round(rng.normal(size=(6, 2)), 2), np.array([0, 1, 2, 0, 1, 2])
    rows, chains = _sequences(rng)
    graphs, of_nodes = _graphs(rng)
    words = [[["w=a", "bos"], ["w=b"]], [["w=b"]]]
    pairs = rng.normal(size=(3, 3, 3, 2))
    fast = {"random_state": 0, "max_iter": 3}
    yield MulticlassClassifier("log", **fast).fit(X, ["a", "b", "c"] * 2), X
    yield MulticlassClassifier("max_min", kernel="rbf", cost=1.0 - np.eye(3), **fast).fit(X, labels), X
    yield MulticlassClassifier("max_min", kernel="poly", **fast).fit(sp.csr_matrix(X), labels), X
    yield OrdinalClassifier(penalty=ElasticNet(0.5), **fast).fit(X, labels), X
    yield MultiLabelClassifier("max_margin", **fast).fit(X, [[1, 0], [0, 1], [1, 1]] * 2), X
    yield LabelRanker(**fast).fit(X, ["a>b>c", "b>a>c"] * 3), X
    yield Matcher("log", **fast).fit(pairs, [[0, 1, 2], [1, 0, 2], [2, 1, 0]]), pairs
    yield SequenceTagger("log", transitions=Transitions(features=[0]), **fast).fit(rows, chains), rows
    yield SequenceTagger("max_min", transitions=Transitions(order=2), constraints="(0|1)* 1", **fast).fit(
        rows, [[0, 1], [1], [0, 0, 1]]), rows
    tagger = SequenceTagger("max_margin", states="observed", **fast)
    # as many columns as there is nothing else, for claims of columns
    wide = [sp.csr_matrix(np.eye(19)[: len(row)]) for row in rows]
    yield tagger.fit(wide, chains), wide
    wide = sp.csr_matrix(np.eye(23)[:6])
    yield MulticlassClassifier("max_min", kernel="poly", **fast).fit(wide, labels), wide
    tagger = SequenceTagger("max_margin", states="observed", **fast)
    yield make_pipeline(SequenceVectorizer(), tagger).fit(words, [["x", "y"], ["y"]]), words
    yield GraphTagger(**fast).fit(graphs, of_nodes), graphs
    yield MultiLabelClassifier("log", graph="complete", **fast).fit(X, [[1, 0], [0, 1], [1, 1]] * 2), X


def _written(write, name="file"):
    """The contents of a file, or by name those of a folder, that a function writes."""
    folder = tempfile.mkdtemp(prefix="fastm4n-fuzz-")
    try:
        path = Path(folder, name)
        write(path)
        if path.is_file():
            return path.read_bytes()
        return {file.name: file.read_bytes() for file in sorted(path.iterdir())}
    finally:
        shutil.rmtree(folder)


def _put(case, path):
    """A file or a folder of these contents, in the place of what was there."""
    if isinstance(case, bytes):
        path.write_bytes(case)
        return
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, content in case.items():
        (path / name).write_bytes(content)


class ModelFiles(Target):
    """Fitted models: what was loaded predicts."""

    def prepare(self):
        models = list(_models())
        self.seeds = [_written(lambda path: save_model(model, path)) for model, _ in models]
        self.X = [X for _, X in models]

    def make(self, rng):
        number = rng.randrange(len(self.seeds))
        return bytes([number, rng.random() < 0.25]) + damaged_arrays_file(
            rng, self.seeds[number], rng.choice(self.seeds))

    def run(self, case, path):
        path.write_bytes(case[2:])
        model = fastm4n.load_model(path)
        if not case[1]:
            return  # predictions take longer than all the rest
        X = self.X[case[0]]
        last = model[-1] if hasattr(model, "steps") else model
        if type(last).__name__ != "SequenceTagger" and last.n_jobs is not None:
            last.n_jobs = 1
        model.predict(X)
        for method in ("predict_proba", "predict_marginals", "predict_k_best"):
            if hasattr(last, method):
                getattr(model if hasattr(model, method) else last, method)(X)


class CRFsuiteModels(Target):
    """Model files of CRFsuite: what was loaded is made a tagger."""

    def prepare(self):
        from crfsuite_files import model_file

        state, transitions = [(0, 0, 0.5), (1, 1, -1.0)], [(0, 1, 2.0), (1, 0, 0.25)]
        self.seeds = [
            model_file(["B", "I"], ["w=a", "w=b"], state, transitions)[0],
            model_file(["B", "I"], ["w=a", "w=b"], state, transitions, order=">")[0],
            (Path(__file__).parent / "crfsuite_model" / "model.crfsuite").read_bytes()]

    def run(self, case, path):
        from fastm4n.crfsuite import load_model

        path.write_bytes(case)
        model = load_model(path)
        model.predict([[["w=a"], ["w=b", "x"]]])


class Paths(Target):
    """Regularisation paths."""

    def prepare(self):
        rng = np.random.default_rng(0)
        X, y = np.round(rng.normal(size=(6, 2)), 2), [0, 1, 2] * 2
        chains = _sequences(rng)
        self.seeds = [
            _written(regularization_path(estimator, *data, eps=0.3).save) for estimator, data in (
                (MulticlassClassifier(random_state=0), (X, y)),
                (SequenceTagger("log", random_state=0), chains))]

    def make(self, rng):
        return damaged_arrays_file(rng, rng.choice(self.seeds), rng.choice(self.seeds))

    def run(self, case, path):
        path.write_bytes(case)
        read = fastm4n.RegularizationPath.load(path)
        read.estimator(read.alphas[-1]).predict(np.zeros((1, 2)))


# ---------------------------------------------------------------------------- checkpoints


class _Killed(BaseException):
    pass


def _half_way(fit, file):
    """Run a fit that is killed after it has written its state for the second time."""
    from fastm4n.solvers import monitor as _checkpoints

    pace, keep, n = (_checkpoints.SECONDS, _checkpoints.TIMES), _checkpoints.write_arrays, 0

    def killing(*args, **options):
        nonlocal n
        keep(*args, **options)
        n += 1
        if n == 2:
            raise _Killed

    _checkpoints.SECONDS = _checkpoints.TIMES = 0.0
    _checkpoints.write_arrays = killing
    try:
        with contextlib.suppress(_Killed):
            fit(file)
    finally:
        _checkpoints.SECONDS, _checkpoints.TIMES = pace
        _checkpoints.write_arrays = keep


class Checkpoints(Target):
    """Files from which fits go on."""

    def prepare(self):
        rng = np.random.default_rng(0)
        X, labels = np.round(rng.normal(size=(8, 2)), 2), [0, 1, 2, 1] * 2
        rows, chains = _sequences(rng)
        rankings = ["a>b>c", "b>a>c", "c>a>b", "a>c>b"] * 2
        graphs, of_nodes = _graphs(rng)
        estimators = (
            (MulticlassClassifier(
                "max_min", solver=fastm4n.BlockFrankWolfe(step="pairwise", cache=4)), X, labels),
            (MulticlassClassifier("log", solver=fastm4n.BlockFrankWolfe()), X, labels),
            (MulticlassClassifier(kernel="rbf", solver=fastm4n.BlockFrankWolfe()), X, labels),
            (SequenceTagger("max_margin", solver=fastm4n.BlockFrankWolfe(step="away", cache=4)),
             rows, chains),
            (SequenceTagger("log", solver=fastm4n.BlockFrankWolfe()), rows, chains),
            (SequenceTagger(transitions=Transitions(order=2), solver=fastm4n.BlockFrankWolfe()), rows, chains),
            (LabelRanker("max_margin", solver=fastm4n.BlockFrankWolfe()), X, rankings),
            (GraphTagger("max_min", solver=fastm4n.BlockFrankWolfe()), graphs, of_nodes),
        )
        self.fits = []
        for estimator, *data in estimators:
            estimator.set_params(random_state=0, alpha=0.05, tol=1e-9, max_iter=12)
            self.fits.append(lambda file, estimator=estimator, data=data: self._fit(
                file, estimator, data))
        self.seeds = [_written(lambda file: _half_way(fit, file)) for fit in self.fits]

    @staticmethod
    def _fit(file, estimator, data):
        with checkpointing(file):
            estimator.fit(*data)

    def make(self, rng):
        number = rng.randrange(len(self.seeds))
        return bytes([number]) + damaged_arrays_file(
            rng, self.seeds[number], rng.choice(self.seeds))

    def run(self, case, path):
        path.write_bytes(case[1:])
        self.fits[case[0]](path)


# -------------------------------------------------------------------------- npz, folders


class GraphFiles(Target):
    """Graphs in npz files."""

    def prepare(self):
        rng = np.random.default_rng(0)
        factors = [[((0, 1, 2), np.zeros((2, 2, 2))), CountFactor([0, 1], 1, 1)], None]
        written = [_graphs(rng), _graphs(rng, factors=factors), _graphs(rng, sparse=True)]
        self.seeds = [_written(lambda path: X.save(path, y), "file.npz") for X, y in written]

    def make(self, rng):
        return damaged_npz(rng, rng.choice(self.seeds), rng.choice(self.seeds))

    def run(self, case, path):
        path.write_bytes(case)
        graphs, y = Graphs.load(path, return_y=True)
        _ = [graphs[i] for i in range(min(len(graphs), 3))], y[:1]


class Folders(Target):
    """Folders of arrays: what passes its checks is read, and fitted now and then."""

    def prepare(self):
        rng = np.random.default_rng(0)
        X, labels = np.round(rng.normal(size=(6, 2)), 2), ["a", "b", "c"] * 2
        rows, chains = _sequences(rng)
        graphs, of_nodes = _graphs(rng, factors=[[CountFactor([0, 1], 1, 1)], None])
        sparse = Sequences.from_list([sp.csr_matrix(x) for x in rows])
        self.readers = (Sequences.open, Sequences.open, datasets.open_rows, Graphs.open)
        writers = (
            lambda path: Sequences.from_list(rows).save(path, chains),
            lambda path: sparse.save(path, chains),
            lambda path: datasets.rows_from_batches([(sp.csr_matrix(X), labels)], path),
            lambda path: Graphs.from_batches([(graphs, of_nodes)], path))
        self.seeds = [_written(write) for write in writers]

    def make(self, rng):
        number = rng.randrange(len(self.seeds))
        return {**damaged_folder(rng, self.seeds[number]), "number": bytes([number])}

    def run(self, case, path):
        number = case["number"][0]
        _put({name: content for name, content in case.items() if name != "number"}, path)
        X, y = self.readers[number](path, return_y=True)
        for i in range(min(len(X), 3)):
            X[i]
        X.check()
        if hasattr(y, "check"):
            y.check()
        # a fit has a weight for each column, however few of them hold anything
        columns = max(matrix.shape[-1] for matrix in X.folder.matrices.values())
        if max(len(X), columns) > 50 or X.n_bytes_on_disk > 10_000:
            return
        cls = (SequenceTagger, SequenceTagger, MulticlassClassifier, GraphTagger)[number]
        cls("max_margin", alpha=0.1, max_iter=1, random_state=0).fit(X, y)


class Arrow(Target):
    """Arrow and Parquet files of sequences."""

    def prepare(self):
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({
            "x": [[[0.5, 1.0], [0.0, 2.0]], [[1.0, 0.0]]], "y": [["a", "b"], ["b"]],
            "s": [[[{"i": 0, "v": 1.0}], [{"i": 2, "v": 0.5}]], [[]]]})

        def write(path):
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)

        self.seeds = [
            _written(write), _written(lambda path: pq.write_table(table, path, compression=None))]

    def make(self, rng):
        number = rng.randrange(2)
        return bytes([2 * number + rng.randrange(2)]) + damaged(
            rng, self.seeds[number], self.seeds[number])

    def run(self, case, path):
        path.write_bytes(case[1:])
        read = (Sequences.from_arrow, Sequences.from_parquet)[case[0] // 2]
        read(path, features=("x", "s")[case[0] % 2], labels="y")


# -------------------------------------------------------------------------- command line


class CommandLine(Target):
    """Arguments of the command line, over small files in a folder of their own."""

    allowed = ()
    seconds = 20.0
    files = {
        "t.csv": b"a,b,kind\n1,2,x\n3,4,y\n2,2,x\n5,4,y\n",
        "s.svm": b"1 qid:1 1:0.5 3:1\n2 qid:1 2:1\n1 qid:2 1:1\n",
        "c.txt": b"EU NNP B\nrejects VBZ O\n\nPeter NNP B\n",
        "r.csv": b"u,v,ranking\n0.5,1,b>a>c\n-2,0,a>b>c\n", "empty.csv": b"",
        "wide.svm": b"1 1:0.5 99999999:1\n2 2:1\n", "wider.svm": b"1 1:0.5 1000000000000:1\n2 2:1\n",
    }
    commands = (
        "fit t.csv --model m2", "fit s.svm --surrogate log --model m2", "fit c.txt --quiet",
        "predict m t.csv --output o.csv", "evaluate m t.csv", "info m", "info t.csv",
        "predict m c.txt", "fit r.csv --max-iter 3", "datasets", "complexity t.csv",
        "path t.csv --eps 0.5", "fit wide.svm", "info wide.svm", "fit wider.svm", "info d", "predict d t.csv",
        "evaluate d t.csv", "predict d c.txt", "complexity d t.csv", "info d --json")
    values = (
        "t.csv", "s.svm", "c.txt", "r.csv", "m", "o.csv", "empty.csv", "missing", ".", "-", "", "0",
        "-1", "1", "2", "0.5", "nan", "inf", "1e400", "9" * 30, "a", "kind", "a,b", ",", "x=1",
        "alpha=0.1", "solver__step=exact", "solver=1", "penalty=null", "cost=[[0,1],[1,0]]", "csv",
        "svmlight", "conll", "log", "max_min", "rbf", "--", "é", "\udcff", "tol=1", "n_jobs=1",
        "verbose=1", "warm_start=true", "states=observed", "transitions__order=2", "constraints=((((",
        "random_state=-1", "max_iter=1e9", "callback=1", "cost_scale=mean", "levels=[1]")

    def prepare(self):
        from fastm4n.cli import _parser

        parsers = _parser()._subparsers._group_actions[0].choices
        self.options = {
            name: sorted(
                option for action in parser._actions for option in action.option_strings
                if option not in ("--help", "-h"))
            for name, parser in parsers.items()}
        rng = np.random.default_rng(0)
        model = MulticlassClassifier(random_state=0).fit(rng.normal(size=(6, 2)), ["x", "y"] * 3)
        self.model = _written(lambda path: save_model(model, path))
        self.models = [_written(self._fitted(data)) for data in ("t.csv", "c.txt", "s.svm")]

    def _fitted(self, data):
        """A function that writes the model of a fit, which tells how its data were read."""
        def write(path):
            source = path.with_name(data)
            source.write_bytes(self.files[data])
            with contextlib.redirect_stdout(io.StringIO()):
                main(["fit", str(source), "--quiet", "--model", str(path)])
        return write

    def make(self, rng):
        words = rng.choice(self.commands).split()
        for _ in range(rng.choice((1, 1, 2, 3))):
            kind, at = rng.randrange(5), rng.randrange(1, len(words) + 1)
            if kind == 0:
                words.insert(at, rng.choice(self.values))
            elif kind == 1:
                words[at:at] = [rng.choice(self.options[words[0]]), rng.choice(self.values)]
            elif kind == 2:
                words.insert(at, rng.choice(self.options[words[0]]))
            elif kind == 3 and at < len(words):
                words[at] = rng.choice(self.values)
            elif at < len(words) and len(words) > 2:
                del words[at]
        if words[0] == "path" and not any("." in word for word in words):
            words.append("t.csv")  # not the digits, which take long
        damaged_model = damaged_arrays_file(rng, rng.choice(self.models), self.model)
        return {"words": json.dumps(words).encode(), "d": damaged_model}

    def run(self, case, path):
        _put({**self.files, "m": self.model, "d": case["d"]}, path)
        before, out, err = os.getcwd(), io.StringIO(), io.StringIO()
        os.chdir(path)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code = main(json.loads(case["words"]))
                except SystemExit as stop:
                    code = stop.code
        finally:
            os.chdir(before)
        if code not in (0, 1, 2):
            raise AssertionError(f"exit code {code!r}")
        if code and "error: " not in err.getvalue():
            raise AssertionError(f"exit code {code}, and no error is told: {err.getvalue()!r:.200}")
        if "Traceback" in err.getvalue():
            raise AssertionError(err.getvalue())
        if code:
            raise ValueError("refused")


# formats of other programs, where this version reads them
for _reader in ("load_svm_hmm", "load_svm_rank"):
    if hasattr(datasets, _reader):
        READERS["svmlight"].readers += (getattr(datasets, _reader),)

FILES = {
    "model_files": ModelFiles(), "paths": Paths(), "checkpoints": Checkpoints(),
    "graph_files": GraphFiles(), "folders": Folders(), "arrow": Arrow(),
}
if (Path(fastm4n.__file__).parent / "crfsuite").is_dir():
    FILES["crfsuite_models"] = CRFsuiteModels()
TARGETS = {**READERS, **FILES, "command_line": CommandLine()}
