"""Reads the papers of a corpus from files of any layout: papers.jsonl, unarXive, or queries with their answers.

    papers.jsonl  {"id", "title", "abstract", "date", "citations": [id], "references": [id]}
    unarXive      {"paper_id", "metadata": {"title", "abstract", "versions": [{"created"}]},
                  "body_text": [{"cite_spans": [{"ref_id"}]}],
                  "bib_entries": {ref_id: {"bib_entry_raw", "ids": {"arxiv_id", "doi", "open_alex_id"},
                  "contained_arXiv_ids": [{"id"}]}}}
    query rows    AutoScholarQuery and SPARBench (`agent_envs.datasets.papersearch.rows`): the papers that answer them

An unarXive paper refers to every work in its bibliography, first those cited in its text, in that order. A work's id is
its arXiv id, its DOI, its OpenAlex id or else a hash of its entry; its title is read from the entry. A row that
describes the same work in full takes precedence.
"""

from __future__ import annotations

import email.utils
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_envs.datasets.fields import text_field
from agent_envs.datasets.papersearch.rows import SUFFIXES, is_query, query_row
from agent_envs.errors import DataError
from agent_envs.files import MAX_ROW_BYTES, open_data
from agent_envs.retrieval.papers import Paper, normal_date, title_key
from agent_envs.retrieval.papers.paper import PaperRow, arxiv_date, arxiv_id, paper_row, read_papers
from agent_envs.tasks import read_rows

_MARK = re.compile(r"\{\{[^{}]*\}\}")
_QUOTED = re.compile(r"[\"“”‘`']{1,2}(?P<title>[^\"“”]{12,300}?),?[\"“”’']{1,2}(?=[\s,.(]|$)")
_YEAR = re.compile(r"\(?\b(?:19|20)\d\d[a-z]?\)?[.,:]?\s+")
_SPLIT = re.compile(r"(?<=[\w)\]$}’'?!]{2})[.?!]\s+(?=[A-Z0-9“\"$({]|arXiv)|(?<=[a-zé]{3}),\s+(?=[A-Z][a-z]+\s+[a-z])")
_NAMES = re.compile(
    r"(?:(?:[A-Z]\.[\s~-]*)+[A-Z][\w'’-]+|[A-Z][\w'’-]+,?\s+(?:[A-Z]\.[\s,-]*)+|et al\.?|and|&|[,;.\s]|eds?\.?)+"
)
_PLACE = re.compile(
    r"(?:\s+10\.\d{4,}/\S+|,\s+[A-Z][\w.]*(?:\s+[\w.&]+){0,5}\s+\d+,\s*\d+)?\s*\((?:19|20)\d\d\)(?:,\s*[\d.]+)?\s*\.?$"
)
_JOURNAL = re.compile(r",\s+(?:[A-Z][a-z]{2,6}|in [A-Z]\w+|preprint)$")
_NOT_A_TITLE = re.compile(r"\bdoi\b|\barXiv|\d,\s*[A-Z]?\d{2,}|^\W*\d+,", re.IGNORECASE)
_PARTICLES = frozenset({"de", "da", "del", "della", "der", "den", "di", "la", "le", "van", "von", "el", "al", "ten"})


def paper_source_files(source: Path) -> list[Path]:
    """Return the files of papers at a path: the file, or all files in a folder and its sub-folders."""
    if source.is_file():
        return [source]
    endings = (*SUFFIXES, ".jsonl.gz")
    files = sorted(
        path
        for path in (source.rglob("*") if source.is_dir() else ())
        if path.name.endswith(endings)
        and not any(part.startswith(".") or part == "index" for part in path.relative_to(source).parts)
        and not is_one_object(path)
    )
    if not files:
        raise DataError(
            f"there are no papers at {source}: expected a file {', '.join(endings)}, or a folder of such files"
        )
    return files


def is_one_object(path: Path) -> bool:
    """Return whether a .json file is one object, such as a saved reply of a service, instead of rows."""
    if path.suffix != ".json":
        return False
    try:
        with open_data(path) as file:
            if not file.read(64).lstrip().startswith(b"{") or path.stat().st_size > MAX_ROW_BYTES:
                return False
            file.seek(0)
            return isinstance(json.load(file), dict)
    except (OSError, ValueError, RecursionError):
        return False  # reading it will raise a clear error


def paper_rows(files: Iterable[Path]) -> Iterator[PaperRow]:
    """Yield the papers of files in any of these layouts, then the works that are only cited."""
    files = list(files)
    known: set[str] = set()
    answers: dict[str, PaperRow] = {}
    cited: dict[str, PaperRow] = {}
    for path in files:
        if path.name.endswith(".gz"):
            for listed in read_papers(path):
                known.add(listed.paper.id)
                yield listed
            continue
        for row, where in read_rows(path):
            if is_query(row):
                for answer in query_row(row, where).papers:
                    # The same paper may occur with several ids: take the first with an abstract.
                    key = title_key(answer.paper.title)
                    if key not in answers or not answers[key].paper.abstract:
                        answers[key] = answer
            elif isinstance(row, dict) and "bib_entries" in row:
                paper, works = unarxive_rows(row, where)
                known.add(paper.paper.id)
                yield paper
                for work in works:
                    cited.setdefault(work.paper.id, work)
            elif isinstance(row, dict):
                listed = paper_row(row, where)
                known.add(listed.paper.id)
                yield listed
            else:
                raise DataError(f"{where}: expected a paper or a query, got {type(row).__name__}")
    for row in (*answers.values(), *cited.values()):
        if row.paper.id not in known:
            known.add(row.paper.id)
            yield row
    if not known:
        raise DataError(
            f"there are no papers in {', '.join(map(str, files[:3]))}, and no answers with ids; pass papers with "
            "corpus=, or use another backend="
        )


def unarxive_rows(row: dict[str, Any], where: str) -> tuple[PaperRow, list[PaperRow]]:
    """Return a paper of unarXive, and the works in its bibliography."""
    meta, entries, body = row.get("metadata"), row.get("bib_entries"), row.get("body_text")
    name = text_field(row, "paper_id", where)
    if not isinstance(meta, dict) or not isinstance(meta.get("title"), str) or not meta["title"].strip():
        raise DataError(f"{where}: expected the paper's title in 'metadata', got {meta!r:.80}")
    if not isinstance(entries, dict) or not isinstance(body, list):
        raise DataError(f"{where}: expected an object under 'bib_entries' and a list under 'body_text'")
    works: dict[str, PaperRow] = {}
    for ref in dict.fromkeys([*_cited(body, row.get("abstract"), where), *entries]):
        if ref in entries and (work := _work(entries[ref], where)) is not None:
            works.setdefault(work.paper.id, work)
    name = arxiv_id(name) or name
    works.pop(name, None)  # a paper that cites itself
    own = row.get("abstract")
    abstracts = (meta.get("abstract"), own.get("text") if isinstance(own, dict) else own)
    abstract = next((_line(text) for text in abstracts if isinstance(text, str) and text.strip()), "")
    paper = Paper(name, _line(meta["title"]), abstract, _created(meta, name))
    return PaperRow(paper, tuple(works)), list(works.values())


def _cited(body: list[Any], abstract: Any, where: str) -> list[str]:
    """Return the bibliography's keys in the order in which the text cites them."""
    refs = []
    for part in [abstract, *body] if isinstance(abstract, dict) else body:
        spans = part.get("cite_spans", []) if isinstance(part, dict) else None
        if not isinstance(spans, list):
            raise DataError(f"{where}: expected paragraphs with 'cite_spans' under 'body_text', got {part!r:.60}")
        for span in spans:
            if not isinstance(span, dict) or not isinstance(span.get("ref_id"), str):
                raise DataError(f"{where}: expected 'ref_id' in a citation span, got {span!r:.60}")
            refs.append(span["ref_id"])
    return refs


def _work(entry: Any, where: str) -> PaperRow | None:
    """Return a work of a bibliography, or None for an entry without words."""
    if not isinstance(entry, dict) or not isinstance(entry.get("bib_entry_raw"), str):
        raise DataError(f"{where}: expected 'bib_entry_raw' in a bibliography entry, got {entry!r:.60}")
    raw = _line(entry["bib_entry_raw"])
    ids = entry.get("ids") or {}
    contained = entry.get("contained_arXiv_ids") or []
    if not isinstance(ids, dict) or not isinstance(contained, list):
        raise DataError(f"{where}: expected ids in a bibliography entry, got {entry!r:.80}")
    candidates = [str(ids.get("arxiv_id") or ""), *(str(i.get("id") or "") for i in contained if isinstance(i, dict))]
    name = next(filter(None, map(arxiv_id, candidates)), "")
    if not name and ids.get("doi"):
        name = f"doi:{str(ids['doi']).strip().lower()}"
    if not name and ids.get("open_alex_id"):
        name = str(ids["open_alex_id"]).rstrip("/").rpartition("/")[2]
    title = bibliography_title(raw)
    if not title:
        return None
    name = name or f"ref:{hashlib.sha256(title_key(raw).encode('utf-8', 'replace')).hexdigest()[:16]}"
    years = re.findall(r"\b(?:19[5-9]\d|20[0-4]\d)\b", raw)
    return PaperRow(Paper(name, title, "", arxiv_date(name) or (years[-1] if years else "")))


def bibliography_title(raw: str) -> str:
    """Return the title in a bibliography entry, or the whole entry if none can be recognized.

    >>> bibliography_title("C. Carstensen and P. Plecháč. Numerical solution of the double well. Math. 66, 1997.")
    'Numerical solution of the double well'
    >>> bibliography_title('A. Ng, “Deep learning of things,” in Proc. ICML, 2011.')
    'Deep learning of things'
    """
    if quoted := _QUOTED.search(raw):
        return _line(quoted["title"])
    names = _NAMES.match(raw)
    rest = raw[names.end() :] if names else raw
    year = _YEAR.match(rest)
    rest = rest[year.end() :] if year else rest
    for part in _SPLIT.split(rest):
        title = _JOURNAL.sub("", _PLACE.sub("", part)).strip(" .,:;")
        if len(title) >= 12 and len(title.split()) > 2 and not _NOT_A_TITLE.search(title) and not _only_names(title):
            return title[:300]
    return raw[:300].strip()


def _only_names(text: str) -> bool:
    """Return whether a text is a list of people.

    >>> _only_names("Ali Sayghe, Junbo Zhao, and R Devon Hjelm"), _only_names("Killing Initial Data")
    (True, False)
    """
    text = text.removesuffix(" et al").rstrip(", ")
    people = [part.split() for part in re.split(r",\s*(?:and\s+)?|\s+and\s+|\s*&\s*", text) if part.strip()]
    return len(people) > 1 and all(
        1 < len(words) < 5 and all(word[:1].isupper() or word in _PARTICLES for word in words) for words in people
    )


def _created(meta: dict[str, Any], name: str) -> str:
    """Return the day of the first version."""
    versions = meta.get("versions")
    first = (
        versions[0].get("created") if isinstance(versions, list) and versions and isinstance(versions[0], dict) else ""
    )
    with suppress(ValueError):
        return email.utils.parsedate_to_datetime(str(first)).date().isoformat()
    with suppress(DataError):
        return normal_date(first)
    return arxiv_date(name)


def _line(text: str) -> str:
    return " ".join(_MARK.sub(" ", text).split())
