"""Writes model.crfsuite and expected.json, which test_crfsuite_models.py reads, by python-crfsuite.

    python tests/crfsuite_model/make.py
"""

import json
from pathlib import Path

import pycrfsuite

FOLDER = Path(__file__).resolve().parent
SENTENCES = [
    ("Zoë saw the café .", "B O O O O"),
    ("Ada Lovelace of Łódź sleeps", "B I O B O"),
    ("the old man saw Ada", "O O O O B"),
    ("Zoë Ada sleeps", "B I O"),
]
# of words and attributes that the model has, and others
NEW = ["Ada saw Łódź", "saw Zoë Ada", "the man", "nobody at all", "Zoë", ""]


def token(words, t):
    word = words[t]
    return {
        "word": word.lower(), "ends": [word[-1], word[-2:]], "capital": word[0].isupper(),
        "length": len(word) / 4, "near": {"before": words[t - 1] if t else "(none)"},
    }


def tokens(sentence):
    words = sentence.split()
    return [token(words, t) for t in range(len(words))]


def main():
    trainer = pycrfsuite.Trainer(
        "lbfgs", {"c1": 0.05, "c2": 0.01, "max_iterations": 50}, verbose=False)
    for sentence, labels in SENTENCES:
        trainer.append(tokens(sentence), labels.split())
    trainer.train(str(FOLDER / "model.crfsuite"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(FOLDER / "model.crfsuite"))
    labels = tagger.labels()
    expected = []
    for sentence in NEW:
        given = tokens(sentence)
        tags = tagger.tag(given)
        marginals = [[tagger.marginal(label, t) for label in labels] for t in range(len(given))]
        expected.append({"tokens": given, "tags": tags, "marginals": marginals})
    with open(FOLDER / "expected.json", "w", encoding="utf-8") as file:
        json.dump({"labels": labels, "sentences": expected}, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
