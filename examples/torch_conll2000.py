"""A BiLSTM tagger of CoNLL-2000 chunks, trained under each of the three losses.

    FASTM4N_DATA=... python examples/torch_conll2000.py --linear --peer

What is learned: a bidirectional LSTM reads embeddings of words, prefixes, suffixes, shapes and
parts of speech, all from scratch, and scores the 22 chunk tags of each token.  `ChainLoss` with
``allowed="bio"`` is the loss, and decodes.  For each surrogate the script prints F1 of the chunks
of the test set, seconds an epoch, and how much of them the loss layer takes.

What it needs: PyTorch, and the folder FASTM4N_DATA with conll2000/train.txt.gz and test.txt.gz.
--linear fits a linear `SequenceTagger` with each surrogate too.  --peer trains one epoch with the
layer of pytorch-crf, if that is installed.  Nothing runs on a GPU.

How long it takes, on one thread: about three minutes for "log" and "max_margin" each, six for
"max_min", and half a minute each for the linear models and the peer.  --quick takes a few seconds,
and its scores mean nothing.
"""

import argparse
import copy
import os
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from fastm4n import SequenceTagger, SequenceVectorizer, Transitions
from fastm4n.datasets import chunking_attributes, load_conll
from fastm4n.metrics import span_f1_score
from fastm4n.torch import ChainLoss

SURROGATES = ("log", "max_margin", "max_min")
# alpha of the linear models times the number of sentences: docs/results/margins.md chose it
LINEAR = {"log": 0.125, "max_margin": 8.0, "max_min": 4.0}
PADDING, UNKNOWN = 0, 1


# ------------------------------------------------------------------------------------------ data


def columns_of(word, tag):
    """What the network is told of a token: strings, one for each embedding."""
    shape = "".join(
        "A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c for c in word)
    short = "".join(c for i, c in enumerate(shape) if i == 0 or c != shape[i - 1])
    low = word.lower()
    return low, tag, low[:2], low[-3:], short


SIZES = (64, 24, 16, 32, 16)  # of their embeddings


class Vocabularies:
    """Numbers of strings; 0 is padding, 1 what did not occur in training."""

    def __init__(self, sentences, labels):
        counts = [Counter() for _ in SIZES]
        for sentence in sentences:
            for token in sentence:
                for count, text in zip(counts, columns_of(*token), strict=True):
                    count[text] += 1
        self.tables = [{text: i + 2 for i, text in enumerate(sorted(count))} for count in counts]
        self.labels = sorted({label for sentence in labels for label in sentence})
        # a word that occurs once stands for those that do not occur: see `hidden_words`
        self.rare = torch.zeros(len(self.tables[0]) + 2, dtype=torch.bool)
        for word, i in self.tables[0].items():
            self.rare[i] = counts[0][word] == 1

    def encode(self, sentences, labels):
        """Pairs of tensors: (length, 5) of the columns, and (length,) of the labels."""
        places = {label: i for i, label in enumerate(self.labels)}
        return [(
            torch.tensor([[
                table.get(text, UNKNOWN)
                for table, text in zip(self.tables, columns_of(*token), strict=True)]
                for token in sentence]),
            torch.tensor([places.get(label, -1) for label in tags]),
        ) for sentence, tags in zip(sentences, labels, strict=True)]


def batches_of(examples, size, generator=None):
    """Padded batches of sentences of about the same length, in random order with a generator."""
    lengths = torch.tensor([len(tags) for _, tags in examples], dtype=torch.float)
    if generator is not None:
        lengths += torch.rand(len(examples), generator=generator)
    groups = torch.argsort(lengths, stable=True).split(size)
    order = range(len(groups))
    if generator is not None:
        order = torch.randperm(len(groups), generator=generator).tolist()
    for i in order:
        rows = groups[i].tolist()
        tokens, tags = zip(*(examples[row] for row in rows), strict=True)
        yield (
            rows,
            pad_sequence(tokens, batch_first=True, padding_value=PADDING),
            pad_sequence(tags, batch_first=True, padding_value=0),
            torch.tensor([len(t) for t in tags]))


# --------------------------------------------------------------------------------------- network


class Network(nn.Module):
    """Embeddings, a bidirectional LSTM, and a score for each label."""

    def __init__(self, vocabularies, hidden, dropout):
        super().__init__()
        self.embeddings = nn.ModuleList(
            nn.Embedding(len(table) + 2, size, padding_idx=PADDING)
            for table, size in zip(vocabularies.tables, SIZES, strict=True))
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(sum(SIZES), hidden, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(2 * hidden, len(vocabularies.labels))
        self.register_buffer("rare", vocabularies.rare)

    def hidden_words(self, words):
        """In training every other word that occurs once is taken for an unknown one."""
        if not self.training:
            return words
        hide = self.rare[words] & (torch.rand(words.shape) < 0.5)
        return words.masked_fill(hide, UNKNOWN)

    def forward(self, tokens, lengths):
        parts = list(tokens.unbind(-1))
        parts[0] = self.hidden_words(parts[0])
        x = torch.cat([
            embed(part) for embed, part in zip(self.embeddings, parts, strict=True)], dim=-1)
        x = pack_padded_sequence(
            self.dropout(x), lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.lstm(x)[0], batch_first=True)
        return self.scores(self.dropout(x))


def predicted(network, layer, examples, labels):
    network.eval()
    found = [None] * len(examples)
    with torch.no_grad():
        for rows, tokens, _, lengths in batches_of(examples, 64):
            decoded = layer.decode(network(tokens, lengths), lengths=lengths)
            for row, tags, length in zip(rows, decoded.tags.tolist(), lengths, strict=True):
                found[row] = [labels[tag] for tag in tags[:length]]
    return found


# -------------------------------------------------------------------------------------- training


def one_epoch(network, loss_of, optimizer, batches):
    """(Mean loss, seconds of all, seconds of the loss layer)."""
    network.train()
    total, n, in_layer, start = 0.0, 0, 0.0, time.perf_counter()
    for rows, tokens, tags, lengths in batches:
        optimizer.zero_grad()
        emissions = network(tokens, lengths)
        # The two backward passes do what loss.backward() does; the leaf between them is there for
        # the clock alone.
        before = time.perf_counter()
        leaf = emissions.detach().requires_grad_()
        loss = loss_of(leaf, tags, lengths)
        loss.backward()
        in_layer += time.perf_counter() - before
        emissions.backward(leaf.grad)
        optimizer.step()
        total += loss.item() * len(rows)
        n += len(rows)
    return total / n, time.perf_counter() - start, in_layer


def train(surrogate, data, vocabularies, truth, args):
    torch.manual_seed(args.seed)
    labels = vocabularies.labels
    network = Network(vocabularies, args.hidden, args.dropout)
    layer = ChainLoss(
        len(labels), surrogate, labels=labels, allowed="bio", tol=args.tol)
    optimizer = torch.optim.Adam([*network.parameters(), *layer.parameters()], lr=args.lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    generator = torch.Generator().manual_seed(args.seed)
    best, state, since, seconds, in_layer, epoch = -1.0, None, 0, 0.0, 0.0, 0
    for epoch in range(1, args.epochs + 1):
        loss, spent, layer_spent = one_epoch(
            network, lambda e, tags, lengths: layer(e, tags, lengths=lengths), optimizer,
            batches_of(data["train"], args.batch, generator))
        schedule.step()
        seconds, in_layer = seconds + spent, in_layer + layer_spent
        f1 = 100 * span_f1_score(truth["dev"], predicted(network, layer, data["dev"], labels))
        print(f"  epoch {epoch}: loss {loss:.3f}, F1 of dev {f1:.2f}, {spent:.1f} s, of which "
              f"{layer_spent:.2f} in the loss layer", flush=True)
        since += 1
        if f1 > best:
            best, since = f1, 0
            state = copy.deepcopy((network.state_dict(), layer.state_dict()))
        if since == args.patience:
            break
    network.load_state_dict(state[0])
    layer.load_state_dict(state[1])
    test = 100 * span_f1_score(truth["test"], predicted(network, layer, data["test"], labels))
    print(f"{surrogate}: F1 of dev {best:.2f}, of test {test:.2f}; {epoch} epochs of "
          f"{seconds / epoch:.1f} s, of which {in_layer / epoch:.2f} "
          f"({100 * in_layer / seconds:.1f} %) in the loss layer", flush=True)
    return test


def peer_epoch(data, vocabularies, args):
    """One epoch with the layer of pytorch-crf, and the same one with `ChainLoss`."""
    try:
        from torchcrf import CRF
    except ImportError:
        print("pytorch-crf is not installed: no comparison with it.")
        return
    n_labels = len(vocabularies.labels)

    def with_mask(layer, emissions, tags, lengths):
        mask = torch.arange(tags.shape[1]) < lengths[:, None]
        return -layer(emissions, tags, mask, reduction="mean")

    peer, ours = CRF(n_labels, batch_first=True), ChainLoss(n_labels)
    ours.load_state_dict(peer.state_dict())  # the names are the same
    for name, layer, loss_of in (
        ("pytorch-crf", peer, lambda e, tags, lengths: with_mask(peer, e, tags, lengths)),
        ("ChainLoss, log", ours, lambda e, tags, lengths: ours(e, tags, lengths=lengths)),
    ):
        torch.manual_seed(args.seed)
        network = Network(vocabularies, args.hidden, args.dropout)
        optimizer = torch.optim.Adam([*network.parameters(), *layer.parameters()], lr=args.lr)
        generator = torch.Generator().manual_seed(args.seed)
        loss, spent, in_layer = one_epoch(
            network, loss_of, optimizer, batches_of(data["train"], args.batch, generator))
        print(f"{name}: first epoch {spent:.1f} s, of which {in_layer:.2f} "
              f"({100 * in_layer / spent:.1f} %) in the loss layer; mean loss {loss:.4f}",
              flush=True)


def linear(sentences, labels, max_iter):
    """Linear models of CRFsuite's attributes of chunking, with certified gaps."""
    vectorizer = SequenceVectorizer()
    X = vectorizer.fit_transform(
        chunking_attributes(*zip(*tokens, strict=True)) for tokens in sentences["train"])
    X_test = vectorizer.transform(
        chunking_attributes(*zip(*tokens, strict=True)) for tokens in sentences["test"])
    for surrogate in SURROGATES:
        start = time.perf_counter()
        tagger = SequenceTagger(
            surrogate, alpha=LINEAR[surrogate] / len(X), tol=1e-2, fit_intercept=False,
            transitions=Transitions(start_end=False), allowed_transitions="bio",
            max_iter=max_iter, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            tagger.fit(X, labels["train"])
        spent = time.perf_counter() - start
        found = [tags.tolist() for tags in tagger.predict(X_test)]
        print(f"linear, {surrogate}: F1 of test {100 * span_f1_score(labels['test'], found):.2f}, "
              f"{spent:.1f} s to a relative gap of {tagger.relative_gap_:.1e}", flush=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--surrogates", nargs="*", default=SURROGATES, choices=SURROGATES)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--patience", type=int, default=5, help="epochs without a better F1 of dev")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=128, help="of the LSTM, in each direction")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--tol", type=float, default=1e-2, help="of the oracle of max_min")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--linear", action="store_true", help="fit linear models too")
    parser.add_argument("--peer", action="store_true", help="an epoch with pytorch-crf too")
    parser.add_argument("--quick", action="store_true", help="a few sentences and one epoch")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if "FASTM4N_DATA" not in os.environ:
        raise SystemExit("The environment variable FASTM4N_DATA must name a folder of data sets.")
    root = Path(os.environ["FASTM4N_DATA"]) / "conll2000"
    sentences, labels = {}, {}
    for part in ("train", "test"):
        read = load_conll(root / f"{part}.txt.gz")
        n = (200 if part == "train" else 100) if args.quick else len(read.tokens)
        sentences[part], labels[part] = read.tokens[:n], read.labels[:n]
    if args.quick:
        args.epochs, args.hidden, args.tol = 1, 32, 0.3
    if args.linear:
        linear(sentences, labels, 3 if args.quick else 1000)
    vocabularies = Vocabularies(sentences["train"], labels["train"])
    encoded = {part: vocabularies.encode(sentences[part], labels[part]) for part in sentences}
    # a tenth of the training sentences is held out, and says when to stop
    order = torch.randperm(
        len(encoded["train"]), generator=torch.Generator().manual_seed(args.seed)).tolist()
    cut = len(order) // 10
    data = {
        "dev": [encoded["train"][i] for i in order[:cut]],
        "train": [encoded["train"][i] for i in order[cut:]], "test": encoded["test"]}
    truth = {"dev": [labels["train"][i] for i in order[:cut]], "test": labels["test"]}
    print(f"{len(data['train'])} sentences of training, {cut} of dev, {len(data['test'])} of "
          f"test; {len(vocabularies.labels)} labels; PyTorch {torch.__version__}, "
          f"{args.threads} thread(s)", flush=True)
    if args.peer:
        peer_epoch(data, vocabularies, args)
    return {name: train(name, data, vocabularies, truth, args) for name in args.surrogates}


if __name__ == "__main__":
    main()
