"""Names of papers: arXiv ids in one form, and which texts may stand in an address."""

from __future__ import annotations

import re

__all__ = ["arxiv_date", "arxiv_id", "plain_arxiv_id", "safe_id"]

_NEW = r"\d{4}\.\d{4,5}"
_OLD = r"[a-z-]+(?:\.[A-Z]{2})?/\d{7}"
_PLAIN = re.compile(rf"({_NEW}|{_OLD})(?:v\d+)?")
_WRITTEN = re.compile(
    rf"\s*(?:https?://(?:\w+\.)*arxiv\.org/(?:abs|pdf|html)/|arxiv:\s*)?({_NEW}|{_OLD})(?:v\d+)?(?:\.pdf)?/?\s*",
    re.IGNORECASE,
)
_SAFE = re.compile(r"[\w:;()<>@+~,=-][\w:;()<>@+~,=./-]{0,300}", re.ASCII)


def plain_arxiv_id(text: str) -> str:
    """An arXiv id without its version, "" for what is none.

    >>> plain_arxiv_id("2104.12255v1"), plain_arxiv_id("astro-ph/0601001"), plain_arxiv_id("abc")
    ('2104.12255', 'astro-ph/0601001', '')
    """
    match = _PLAIN.fullmatch(text)
    return match[1] if match else ""


def arxiv_id(text: str) -> str:
    """The arXiv id that a text is, in any of the usual forms, without its version; "" for other texts.

    >>> [arxiv_id(t) for t in ("arXiv:2009.02040v3", "http://arxiv.org/pdf/2103.14030", "PMID:38697206")]
    ['2009.02040', '2103.14030', '']
    """
    match = _WRITTEN.fullmatch(text)
    return match[1] if match else ""


def arxiv_date(name: str) -> str:
    """The month that an arXiv id tells, "" for other ids.

    >>> arxiv_date("2009.02040"), arxiv_date("astro-ph/9901001"), arxiv_date("CorpusID:1"), arxiv_date("2099.00001")
    ('2020-09', '1999-01', '', '')
    """
    if not plain_arxiv_id(name):
        return ""
    year, month = (name.rpartition("/")[2][begin : begin + 2] for begin in (0, 2))
    if not 1 <= int(month) <= 12:
        return ""
    return f"{'19' if int(year) > 90 else '20'}{year}-{month}"


def safe_id(text: str) -> bool:
    """Whether an id may stand in the path of an address: it leads nowhere else.

    >>> safe_id("10.2139/ssrn.2250500"), safe_id("CorpusID:1"), safe_id("../admin"), safe_id("a?b"), safe_id("")
    (True, True, False, False, False)
    """
    return _SAFE.fullmatch(text) is not None and not any(part in ("", ".", "..") for part in text.split("/"))
