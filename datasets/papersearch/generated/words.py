"""The words and sentences of the generated papers.

Slots: {A} the topic as the paper calls it ({B} its other name), {N} a neighbouring topic, {X} the paper's own method,
{Y} the method that it builds on, {S} the setting it works in, {M} the kind of method, {Z} something that says nothing
about the topic. What is invented is lower case but for methods.
"""

from __future__ import annotations

__all__ = [
    "ALIASES",
    "BUILDS",
    "FINDINGS",
    "HIDDEN_TITLES",
    "LOOKALIKES",
    "METHODS",
    "NOUNS",
    "OPENINGS",
    "OTHER_NOUNS",
    "PLAIN_TITLES",
    "QUERIES",
    "SETTINGS",
    "SURVEYS",
    "SURVEY_ENDINGS",
    "SURVEY_TITLES",
    "THEMES",
    "VAGUE_OPENINGS",
    "WORK",
]

NOUNS = (
    *("graphs", "transformers", "codes", "samplers", "kernels", "grammars", "automata", "embeddings", "estimators"),
    *("parsers", "solvers", "bandits", "decoders", "lattices", "manifolds", "matchings", "planners", "quantizers"),
)
"""Of the names of neighbouring topics."""

OTHER_NOUNS = (
    *("machines", "routers", "ensembles", "mixtures", "memories", "filters", "trees", "flows", "sketches", "chains"),
    *("games", "tensors", "fields", "schedules", "walks", "prompts", "trackers", "indexes"),
)
"""Of the other names that some papers use."""

SETTINGS = (
    *(
        "streaming data",
        "low-resource languages",
        "noisy labels",
        "long documents",
        "mobile devices",
        "clinical records",
    ),
    *("satellite images", "user privacy", "distribution shift", "rare classes", "adversarial inputs", "time series"),
    *("source code", "legal text", "sensor networks", "molecular data", "speech recordings", "partial feedback"),
    *("multiple agents", "missing values", "tabular data", "robot control", "web pages", "very large catalogues"),
)
"""What a paper works in; the same all over the corpus."""

METHODS = (
    *("two-stage procedure", "training objective", "pruning rule", "search strategy", "probabilistic model"),
    *(
        "regularizer",
        "benchmark",
        "theoretical analysis",
        "distillation scheme",
        "retrieval step",
        "self-supervised loss",
    ),
    *("data set", "curriculum", "calibration method", "greedy algorithm", "variational bound"),
)

PLAIN_TITLES = (
    "{X}: {A} for {S}",
    "Learning {A} with {X}",
    "{X}, a {M} for {A}",
    "{A} under {S}: the case of {X}",
    "Towards better {A} with {X}",
    "{X}: rethinking {A}",
)

HIDDEN_TITLES = (
    "{X}: a {M} for {S}",
    "{X}",
    "{X}: lessons from {S}",
    "The {X} approach",
    "{X} revisited: a {M}",
)

SURVEY_TITLES = ("A survey of {A}", "{A}: a review", "Ten questions about {A}", "A tutorial on {A}")

OPENINGS = (
    "Much has been written about {A}, but open questions remain.",
    "{A} have become a common tool.",
    "We study {A} and ask what makes them work.",
    "Training {A} is costly and often unstable.",
    "The success of {A} is still poorly understood.",
    "This paper is about {A}.",
)

VAGUE_OPENINGS = (
    "Practice has moved faster than theory in recent years.",
    "Existing solutions need more data than is available.",
    "We look at a familiar problem from another side.",
    "Simple ideas are easily overlooked.",
    "Strong results are often hard to reproduce.",
    "We start from a surprising failure of current systems.",
)

WORK = (
    "We present {X}, a {M} made for {S}.",
    "Our method, {X}, is a {M} and is evaluated on {S}.",
    "We propose {X}: a {M} that copes with {S}.",
    "{X}, our {M}, is designed with {S} in mind.",
)

BUILDS = (
    "It builds on {Y}.",
    "It keeps the core of {Y} and replaces the rest.",
    "Starting from {Y}, we remove its strongest assumption.",
    "It can be seen as an extension of {Y}.",
)

ALIASES = (
    "Other communities speak of {B}.",
    "The same objects are also known as {B}.",
    "In part of the literature these are called {B}.",
)

LOOKALIKES = (
    "Results on {N} do not carry over.",
    "Unlike {N}, this needs no supervision.",
    "The relation to {N} is discussed in an appendix.",
)

FINDINGS = (
    "Experiments show consistent gains, and a section is devoted to {Z}.",
    "It halves the cost at the same quality, as a study of {Z} shows.",
    "An ablation points to the role of {Z}.",
    "We release our implementation and notes on {Z}.",
    "A user study asks about {Z}.",
    "Limits are shown with regard to {Z}.",
)

THEMES = (
    *("strong baselines", "careful initialisation", "longer training", "human annotation", "hyperparameter search"),
    *("larger batches", "hand-written rules", "linear probes", "random restarts", "early stopping", "plain averaging"),
    *("public leaderboards", "error analysis", "memory use", "numerical precision", "negative results"),
)

SURVEYS = (
    "This survey reviews work on {A}, also known as {B}.",
    "We review what is known about {A}, which others call {B}.",
    "Work on {A} (in other communities: {B}) has grown quickly, and we take stock.",
)

SURVEY_ENDINGS = (
    "We sort the literature by assumptions and compare reported results.",
    "We give a taxonomy, name common pitfalls and list open problems.",
    "Many of the reviewed methods were never described in these terms; we say why they belong here.",
)

QUERIES = {
    "topic": (
        "Which papers study {a}?",
        "Could you list research on {a}?",
        "Can you tell me some papers about {a}?",
        "What work has been done on {a}?",
        "I am writing the related-work section of a paper on {a}; what should it cite?",
        "Are there any studies that investigate {a}?",
    ),
    "setting": (
        "Which papers study {a} for {s}?",
        "What work deals with {a} in the presence of {s}?",
        "Could you list research on {a} that is concerned with {s}?",
        "Are there any studies of {a} made for {s}?",
    ),
    "followups": (
        "Which paper introduced {x}, and which papers cite it?",
        "Could you give me the {x} paper and all work that refers to it?",
        "I am looking for {x} and everything that cites it.",
    ),
    "pair": (
        "Which papers study {a} or {b}?",
        "Could you list research on {a} and on {b}?",
        "What has been published about {a}, and what about {b}?",
    ),
}
"""Queries by kind: all papers on a topic, those of one setting, a paper and what cites it, two neighbouring topics."""
