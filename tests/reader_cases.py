"""What the tests of readers share."""

import io

SVMLIGHT = "1 qid:3 1:0.5 3:1 # änd\n2 qid:3 2:-1e-1\n\n1 qid:1 1:1\n"
RANKINGS = "u,v,ranking\n0.5,1,b>ä>c\n-2e-1,0,ä>b>c\n"


def text(string):
    return io.StringIO(string)
