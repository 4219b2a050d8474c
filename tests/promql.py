"""The part of PromQL that deploy/prometheus uses, over scrapes of /metrics: enough to see whether a rule fires."""
import re

TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_:]*|\d+(?:\.\d+)?|==|>=|<=|!=|[-+*/(){}\[\],=<>]|\"[^\"]*\")")
COMPARE = {">": lambda a, b: a > b, "<": lambda a, b: a < b, "==": lambda a, b: a == b, ">=": lambda a, b: a >= b}


def scrape(text):
    """{(name, labels): value}"""
    out = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if match and not line.startswith("#"):
            key = (match[1], frozenset(re.findall(r'(\w+)="([^"]*)"', match[2] or "")))
            assert key not in out, f"{key} twice"
            out[key] = float(match[3])
    return out


class Query:
    """Evaluates one expression: gauges by the later of two scrapes, rates between them. Vectors are {labels: value}."""

    def __init__(self, text, before, after, seconds):
        self.tokens = TOKEN.findall(text)
        assert "".join(self.tokens) == re.sub(r"\s", "", text), text
        self.before, self.after, self.seconds = before, after, seconds

    def peek(self):
        return self.tokens[0] if self.tokens else None

    def take(self, want=None):
        token = self.tokens.pop(0)
        assert want in (None, token), (want, token, self.tokens)
        return token

    def value(self):
        out = self.comparison()
        while self.peek() == "and":
            self.take()
            other = self.comparison()
            out = {k: v for k, v in out.items() if k in other}
        assert not self.tokens or self.peek() == ")", self.tokens
        return out

    def comparison(self):
        out = self.sums()
        if self.peek() in COMPARE:
            holds, most = COMPARE[self.take()], self.sums()
            out = {k: v for k, v in out.items() if holds(v, most)}
        return out

    def sums(self):
        out = self.one()
        while self.peek() in ("*", "/"):
            sign, other = self.take(), self.one()
            out = self.apply(sign, out, other)
        return out

    def apply(self, sign, a, b):
        if isinstance(a, float):
            return {k: a * v for k, v in b.items()}
        return {k: v / b[k] for k, v in a.items() if k in b and b[k]}

    def one(self):
        token = self.take()
        if re.match(r"\d", token):
            return float(token)
        if token == "(":
            out = self.value()
            self.take(")")
            return out
        return getattr(self, "f_" + token, lambda: self.selector(token, self.after))()

    def f_sum(self):
        by = None
        if self.peek() == "by":
            self.take(), self.take("(")
            by = self.take()
            self.take(")")
        self.take("(")
        out = {}
        for labels, value in self.value().items():
            key = frozenset(pair for pair in labels if by and pair[0] == by)
            out[key] = out.get(key, 0) + value
        self.take(")")
        return out

    def f_rate(self):
        self.take("(")
        name, rest = self.take(), list(self.tokens)
        later = self.selector(name, self.after)
        self.tokens = rest
        sooner = self.selector(name, self.before)
        self.take("["), self.take(), self.take(), self.take("]"), self.take(")")
        return {k: (v - sooner.get(k, 0)) / self.seconds for k, v in later.items()}

    def f_histogram_quantile(self):
        self.take("(")
        share = float(self.take())
        self.take(",")
        buckets = sorted((float(dict(k)["le"]), v) for k, v in self.value().items())
        self.take(")")
        if not buckets or not buckets[-1][1]:
            return {}
        rank, low, below = share * buckets[-1][1], 0.0, 0.0
        for bound, count in buckets:
            if count >= rank:
                return {frozenset(): low if bound == float("inf") else
                        low + (bound - low) * (rank - below) / max(count - below, 1e-9)}
            low, below = bound, count
        return {}

    def selector(self, name, scraped):
        want = set()
        if self.peek() == "{":
            self.take()
            while self.peek() != "}":
                label = self.take()
                self.take("=")
                want.add((label, self.take().strip('"')))
                if self.peek() == ",":
                    self.take()
            self.take("}")
        return {labels: v for (n, labels), v in scraped.items() if n == name and want <= labels}
