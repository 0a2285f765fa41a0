"""English words, abbreviations and emoticons that are tokens or are split in a way of their own: `english_tokens`."""

from __future__ import annotations

__all__ = ["PIECES"]

_PRONOUNS = "he i it she that there these they this those we what when where who why you how"
# Endings, and what they follow; "'" may be "’", or missing where the last column says so of these words.
_SPLITS = (
    ("n't", "ai are ca could dare did does do had has have is may might must need ought sha should was were wo would"),
    ("n't 've", "ca could did does do had may might must need ought sha should wo would"),
    ("'ve", "could how i might must not should there these they those we what when where who why would you"),
    ("'d", _PRONOUNS),
    ("'d 've", _PRONOUNS),
    ("'ll", _PRONOUNS),
    ("'ll 've", _PRONOUNS),
    ("'s", "he how it let she that there this what when where who why"),
    ("'re", "how there these they those we what when where who why you"),
    ("'m", "i"),
    ("'m a", "i"),
    ("'d 'y", "how"),
)
_WITHOUT = {  # the same without the apostrophe
    "nt": _SPLITS[0][1],
    "nt ve": _SPLITS[1][1],
    "ve": _SPLITS[2][1],
    "d": "he how i it that there these they this those we what when where who why you",
    "d ve": "he she how i it that there these they this those we what when where who why you",
    "ll": "how it that there these they this those what when where who why you",
    "ll ve": "he she how i it that there these they this those we what when where who why you",
    "s": "he how she that there this what when where who why",
    "re": "how there these they those what when where why you",
    "m": "i",
    "m a": "i",
    "na": "gon",
    "ta": "got",
    "not": "can",
}
_WHOLE = """
    Adm. Ak. Ala. Apr. Ariz. Ark. Aug. Bros. C++ Calif. Co. Colo. Conn. Corp. D.C. Dec. Del. Dr. E.G.
    E.g. Feb. Fla. Ga. Gen. Gov. I.E. I.e. Ia. Id. Ill. Inc. Ind. Jan. Jr. Jul. Jun. Kan. Kans. Ky. La.
    Ltd. Mar. Mass. Md. Messrs. Mich. Minn. Miss. Mo. Mont. Mr. Mrs. Ms. Mt. N.C. N.D. N.H. N.J. N.M.
    N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. Ph.D. Prof. Rep. Rev. S.C. Sen. Sep. Sept. St. Tenn.
    Va. Wash. Wis. a.m. and/or co. e.g. i.e. p.m. v.s. vs. w/o em ll nuff Doin Goin Havin Lovin Nothin
    Nuthin Ol Somethin doin goin havin lovin nothin nuthin ol somethin '' 'Cause 'Cos 'Coz 'Cuz 'S 'bout
    'cause 'cos 'coz 'cuz 'd 'em 'll 'nuff 're 's Doin' Goin' Havin' Lovin' Ma'am Nothin' Nuthin'
    O'clock Ol' Somethin' doin' goin' havin' lovin' ma'am nothin' nuthin' o'clock ol' somethin' ' — ‘S
    ‘s \\") \\n \\t <space> (*_*) (-8 (-: (-; (-_-) (._.) (: (; (= (>_<) (^_^) (o: (¬_¬) (ಠ_ಠ)
    (╯°□°）╯︵┻━┻ )-: ): -_- -__- ._. 0.0 0.o 0_0 0_o 8) 8-) 8-D 8D :'( :') :'-( :'-) :( :(( :((( :() :)
    :)) :))) :* :-( :-(( :-((( :-) :-)) :-))) :-* :-/ :-0 :-3 :-> :-D :-O :-P :-X :-] :-o :-p :-x :-|
    :-} :/ :0 :1 :3 :> :D :O :P :X :] :o :o) :p :x :| :} ;) ;-) ;-D ;D ;_; <.< </3 <3 <33 <333 =( =) =/
    =3 =D =[ =] =| >.< >.> >:( >:o ><(((*> @_@ O.O O.o O_O O_o V.V V_V XD XDD [-: [: [= ]= ^_^ ^__^
    ^___^ o.0 o.O o.o o_0 o_O o_o v.v v_v xD xDD ¯\\(ツ)/¯ ಠ_ಠ ಠ︵ಠ
"""


def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}

    def add(*pieces: str) -> None:
        for split in (pieces, (pieces[0][:1].upper() + pieces[0][1:], *pieces[1:])):
            table["".join(split)] = split

    for endings, words in _SPLITS:
        for word in words.split():
            add(word, *endings.split())
            add(word, *endings.replace("'", "’").split())
    for endings, words in _WITHOUT.items():
        for word in words.split():
            add(word, *endings.split())
    for mark in "'’":
        add("c" + mark + "m", "on")
        table[f"y{mark}all"] = ("y" + mark, "all")
    table["yall"] = ("y", "all")
    for whole in _WHOLE.split():
        table[whole] = (whole,)
        table[whole.replace("'", "’")] = (whole.replace("'", "’"),)
    for letter in "abcdefghijklmnopqrstuvwxyzäöü":
        table[letter + "."] = (letter + ".",)
    for hour in range(1, 13):
        for half in ("am", "pm", "a.m.", "p.m."):
            table[f"{hour}{half}"] = (str(hour), half)
    for scale in "CFKcfk":
        table[f"°{scale}."] = ("°", scale, ".")
    return table


PIECES = _table()
"""Text -> its tokens."""
