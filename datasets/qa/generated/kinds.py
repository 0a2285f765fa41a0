"""Kinds of things in the generated encyclopaedia: their names, first sentences and sentences that state no fact."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that has articles."""

    name: str
    """What it is called."""
    share: int
    """Articles of this kind out of 100."""
    nouns: tuple[str, ...]
    """What stands in its titles' brackets, before its names, and in "the film"; people have their occupations."""
    shapes: tuple[str, ...]
    """Forms of its names: `{w}` is an invented word, `{g}` a given name, `{n}` one of `words`."""
    openings: tuple[str, ...]
    """First sentences: `{s}` is the name, `{a}` the clause with another name (may be empty), `{noun}` a noun."""
    fillers: tuple[str, ...]
    """Sentences that state no fact: `{town}` and `{person}` are others that have nothing to do with it."""
    article: bool = False
    """Whether "the" goes before its names in running text."""
    words: tuple[str, ...] = ("",)
    """What `{n}` may be."""
    alias: str = ""
    """The clause of its other name, with `{a}`; "" where it has none."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OCCUPATIONS = _words(
    "painter engineer botanist physician geologist lawyer mathematician printer chemist cartographer sculptor "
    "architect violinist journalist surveyor astronomer historian photographer linguist merchant"
)

_SHAPES = ("The {n} of {w}", "The {w} {n}", "The Last {n} of {w}", "Under the {n} of {w}")
_NOVELS = _words("Lantern Orchard Winter Clockmaker Ferryman Letter Widow Stranger Silence Inheritance")
_FILMS = _words("Harbour Mirror Sparrow Island Summer Road Shadow Storm Compass Express")
_PAINTINGS = _words("Garden Mountain Glass Feast Kitchen Violin Harvest Door Crown Ferry")

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            *("person", 30, OCCUPATIONS, ("{g} {w}",)),
            (
                "{s}{a} was {noun}.",
                "{s}{a} was {noun} of some renown.",
                "{s}{a} made a name as {noun}.",
                "{s}{a} is remembered as {noun}.",
                "{s}{a} was {noun} whose notebooks survive only in part.",
            ),
            (
                "A street in {town} bears {p} name.",
                "{s} spent one long summer in {town}.",
                "{s} did not care to be compared with {person}.",
                "A portrait of {m} was lost in a fire at {town}.",
                "{s} kept bees and a large correspondence.",
                "For years {s} exchanged letters with {person}.",
                "{s} walked to {town} and back for a wager.",
                "Contemporaries describe {m} as stubborn and generous.",
            ),
            alias=" (in full {a})",
        ),
        Kind(
            *("town", 18, ("town",)),
            ("{w}", "New {w}", "Upper {w}", "{w} Falls", "Port {w}", "{w} Heath"),
            (
                "{s}{a} is a town.",
                "{s}{a} is a market town of modest size.",
                "{s}{a} is a town known for its fairs.",
                "{s}{a} is a quiet town of brick houses.",
            ),
            (
                "The road to {town} is closed in winter.",
                "A statue of {person} was put up on the square and later removed.",
                "{s} is often confused with {town}.",
                "The weekly market is held on Thursdays.",
                "{person} once called {m} the dullest place on earth.",
                "Its old walls were pulled down for their stone.",
            ),
            alias=", also known as {a},",
        ),
        Kind(
            *("region", 7, ("region",)),
            ("{w} Province", "{w} Valley", "Duchy of {w}"),
            (
                "{s} is a region of low hills.",
                "{s} is a wooded region.",
                "{s} is a region of lakes and moorland.",
                "{s} is a thinly settled region.",
            ),
            (
                "Its cheese is sold as far away as {town}.",
                "{person} mapped {m} on foot.",
                "Winters are long, and roads are few.",
                "Travellers usually come by way of {town}.",
            ),
            article=True,
        ),
        Kind(
            *("country", 3, ("country",)),
            ("{w}ia",),
            (
                "{s}{a} is a country of farmers and sailors.",
                "{s}{a} is a small country.",
                "{s}{a} is a landlocked country.",
                "{s}{a} is a country with a long coast.",
            ),
            (
                "Its railways were planned by {person}.",
                "The oldest university was closed and its library sent to {town}.",
                "Tea and timber are the main exports.",
                "A treaty signed in {town} settled the last border dispute.",
            ),
            alias=", officially the {a},",
        ),
        Kind(
            *("river", 7, ("river",)),
            ("River {w}",),
            (
                "{s} is a slow river.",
                "{s} is a river that floods every spring.",
                "{s} is a river rich in trout.",
                "{s} is a shallow river with many fords.",
            ),
            (
                "{person} nearly drowned in {m}.",
                "Timber for {town} was once floated down on rafts.",
                "Herons nest along the lower course.",
                "A plan to divert {m} to {town} came to nothing.",
            ),
            article=True,
        ),
        Kind(
            *("school", 6, ("school",)),
            ("University of {w}", "{w} Academy", "{w} College", "{w} Institute"),
            (
                "{s} is a school of higher learning.",
                "{s} is an old school with strict rules.",
                "{s} is a school best known for its library.",
                "{s} is a school of the sciences.",
            ),
            (
                "A plan to move {m} to {town} was voted down.",
                "{person} was turned away at {p} gates.",
                "The library holds a map of {town} drawn on silk.",
                "Examinations are held in June.",
            ),
            article=True,
        ),
        Kind(
            *("company", 6, ("company",)),
            ("{w} & Sons", "{w} Press", "{w} Instruments", "{w} Trading Company"),
            (
                "{s} is a company with a long ledger of quarrels.",
                "{s} is a family company.",
                "{s} is a company of printers and dealers.",
                "{s} is a company that outlived all its rivals.",
            ),
            (
                "A branch in {town} was closed after a year.",
                "{person} sued {m} twice and lost.",
                "Its catalogue is prized by collectors.",
                "A warehouse in {town} burned down.",
            ),
        ),
        Kind(
            *("novel", 8, ("novel",), _SHAPES),
            (
                "{s} is a novel in three parts.",
                "{s} is a novel told in letters.",
                "{s} is a short novel.",
                "{s} is a novel about a disputed inheritance.",
            ),
            (
                "{person} called {m} unreadable.",
                "A pirated edition was sold in {town}.",
                "The manuscript was bought by a collector in {town}.",
                "It has been translated four times.",
            ),
            words=_NOVELS,
        ),
        Kind(
            *("film", 7, ("film",), _SHAPES),
            (
                "{s} is a film that was long thought lost.",
                "{s} is a silent film.",
                "{s} is a film made on a small budget.",
                "{s} is a film known for its storm scene.",
            ),
            (
                "{person} refused a part in {m}.",
                "The only print was found in a cellar in {town}.",
                "Some scenes were shot in {town}.",
                "Critics were divided.",
            ),
            words=_FILMS,
        ),
        Kind(
            *("painting", 4, ("painting",), _SHAPES),
            (
                "{s} is a painting in oil.",
                "{s} is a large painting.",
                "{s} is an unfinished painting.",
                "{s} is a painting of unusual size.",
            ),
            (
                "{person} offered a fortune for {m}.",
                "It was shown once in {town} and came back damaged.",
                "A copy turned up in {town}.",
                "The frame is younger than the canvas.",
            ),
            words=_PAINTINGS,
        ),
        Kind(
            *("building", 4, ("building",)),
            ("{w} Hall", "{w} Observatory", "{w} Theatre", "{w} Tower"),
            (
                "{s} is a building of red stone.",
                "{s} is a public building.",
                "{s} is a much restored building.",
                "{s} is a building with a copper roof.",
            ),
            (
                "{person} wanted it torn down.",
                "Its bell was cast in {town}.",
                "The stairs were brought from {town}.",
                "Concerts are given there in autumn.",
            ),
        ),
    )
}
