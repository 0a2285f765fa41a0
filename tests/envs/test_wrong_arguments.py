"""A wrong argument is one message that says what was expected, at `make` or at the first `reset`.

1. What every id takes. 2. What one environment takes. 3. What names a file or folder that is not there.
Arguments of games of other packages are in their own files, paths that nobody can use in tests/attacks/test_limits.py.
"""

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.errors import ConfigError, DataError
from agent_envs.registration import PICTURE_IDS
from agent_envs.retrieval import StaticRetriever

NAMES = [env_id.removeprefix("AgentR1/").removesuffix("-v0") for env_id in (*agent_envs.ENV_IDS, *PICTURE_IDS)]
EVERYWHERE = [
    ({"split": "trian"}, "split must be one of 'train', .*got 'trian'"),
    ({"split": ["train"]}, r"split must be .*, got \['train'\]"),
    ({"data": None}, "data must be 'generated', 'official' or a path, got None"),
    ({"data": 5}, "data must be 'generated', 'official' or a path, got 5"),
]


WRONG = [
    ("ALFWorld", {"families": ["pick"]}, "families must be one of .*got 'pick'"),
    ("ALFWorld", {"engine": "nativ"}, "engine must be .*got 'nativ'. Did you mean 'native'"),
    ("GSM8K", {"level": 9}, "from 1 to 8"),
    ("GSM8K", {"reward": "agent1"}, "Did you mean 'agentr1'"),
    ("GSM8KCode", {"sandbox": "forkd"}, "Did you mean 'forked'"),
    ("GSM8KCode", {"style": "retool", "parser": "hermes"}, "has its own format"),
    ("GSM8KCode", {"style": "tol"}, "Did you mean 'tool'"),
    ("GSM8KTool", {"tool": "calculater"}, "Did you mean 'calculator'"),
    ("HelpDesk", {"customer": "rude"}, "customer must be one of"),
    ("HelpDesk", {"customer": "voiced"}, "model must name the model"),
    ("HelpDesk", {"data": "official"}, "data must be 'generated'"),
    ("HelpDesk", {"domains": "bakery"}, "domains must be one of"),
    ("HelpDesk", {"domains": 3}, "domains must be 'all' or names of .*, got 3"),
    ("HelpDesk", {"level": 9}, "level must be"),
    ("HelpDesk", {"reward": "dense"}, "reward must be one of"),
    ("HelpDesk", {"talk": "loud"}, "talk must be one of"),
    ("HotpotQA", {"articles": 10}, "from 200 to 5000000"),
    ("HotpotQA", {"articles": [1000]}, r"articles must be an integer from 200 to 5000000, got \[1000\]"),
    ("HotpotQA", {"articles": 1000.0}, "from 200 to 5000000, got 1000.0"),  # also once 1000 was asked for
    ("HotpotQA", {"corpus": ""}, "corpus must be the path"),
    ("HotpotQA", {"corpus": 5}, "corpus must be the path of a passages.jsonl or of an index, got 5"),
    ("HotpotQA", {"corpus": "a", "retriever": "b"}, "other retrievers have their own corpus"),
    ("HotpotQA", {"force_first_search": "no"}, "force_first_search must be True or False, got 'no'"),
    ("HotpotQA", {"hops": 5}, "hops must be an integer from 2 to 4"),
    ("HotpotQA", {"max_calls": 0}, "at least 1, got 0"),
    ("HotpotQA", {"max_parallel_calls": 2}, "does not take 'max_parallel_calls'. Did you mean 'max_calls'"),
    ("HotpotQA", {"parser": "herms"}, "Did you mean 'hermes'"),
    ("HotpotQA", {"parser": "json", "reward": "qa_format"}, "reward='qa_format' has its own format"),
    ("HotpotQA", {"parser": "json", "style": "react"}, "style='react' has its own format"),
    ("HotpotQA", {"parser": "react"}, "'react' can only write"),
    ("HotpotQA", {"passage_chars": 0}, "passage_chars must be"),
    ("HotpotQA", {"retriever": ""}, "or a Retriever"),
    ("HotpotQA", {"retriever": "ftp://x"}, "http"),
    ("HotpotQA", {"retriever": StaticRetriever}, "or a Retriever"),
    ("HotpotQA", {"retriever": object()}, "retriever must be 'bm25', 'lucene', the address"),
    ("HotpotQA", {"reward": "exact"}, "'em', 'f1', 'qa_format', 'sub_em'"),
    ("HotpotQA", {"style": "react", "force_first_search": True}, "requires style='tool'"),
    ("HotpotQA", {"style": "react", "reward": "qa_format"}, "requires style='tool'"),
    ("HotpotQA", {"style": "tol"}, "Did you mean 'tool'"),
    ("HotpotQA", {"top_k": 0}, "top_k must be an integer of at least 1"),
    ("MathCode", {"data": "official"}, "give the path"),
    ("MathCode", {"families": "dice,dats"}, "Did you mean 'dates'"),
    ("PaperSearch", {"hidden": [0.4]}, r"hidden must be a number, got \[0.4\]"),
    ("PaperSearch", {"papers": [2000]}, r"papers must be an integer from 100 to 5000000, got \[2000\]"),
    ("PaperSearch", {"abstract_words": -1}, "abstract_words must be"),
    ("PaperSearch", {"backend": "arxvi"}, "Did you mean 'arxiv'"),
    ("PaperSearch", {"backend": 5}, "backend must be a name such as 'local' or a PaperBackend, got 5"),
    ("PaperSearch", {"corpus": ""}, "corpus must be the path"),
    ("PaperSearch", {"corpus": 5}, "corpus must be the path"),
    ("PaperSearch", {"corpus": "x.jsonl", "backend": "arxiv"}, "corpus= requires backend='local'"),
    ("PaperSearch", {"hidden": 0.9}, "0 to 0.6"),
    ("PaperSearch", {"max_calls": True}, "max_parallel_calls must be"),
    ("PaperSearch", {"papers": 10}, "100 to 5000000"),
    ("PaperSearch", {"parser": "fenced_python"}, "use another, such as 'hermes'"),
    ("PaperSearch", {"parser": "react"}, r"'react' can only write search\(entity\) and lookup"),
    ("PaperSearch", {"parser": "search_r1"}, r"tools include expand\(paper_id\)"),
    ("PaperSearch", {"reward": "agentr2"}, "Did you mean 'agentr1'"),
    ("PaperSearch", {"selector": "lexicle"}, "Did you mean 'lexical'"),
    ("PaperSearch", {"selector": 5}, "selector must be a name such as 'gold' or a Selector, got 5"),
    ("PaperSearch", {"shown": True}, "shown must be"),
    ("PaperSearch", {"top_k": 0}, "top_k must be"),
    ("PictureSearch", {"data": "official"}, "no official data set"),
    ("PictureSearch", {"expert": "none"}, "expert must be"),
    ("PictureSearch", {"families": 3}, "families must be"),
    ("PictureSearch", {"families": "find,coun"}, "Did you mean 'count'"),
    ("PictureSearch", {"level": 6}, "level must be"),
    ("PictureSearch", {"max_zooms": 0}, "max_zooms must be"),
    ("PictureSearch", {"size": 300}, "size must be"),
    ("PictureSearch", {"view": "sound"}, "view must be"),
    ("TableQA", {"code_timeout": 0}, "code_timeout must be"),
    ("TableQA", {"data": "official"}, "give the path"),
    ("TableQA", {"level": 9}, "level must be"),
    ("WebShop", {"data": "nowhere", "products": 10}, "products= applies only to data='generated'"),
    ("WebShop", {"goals": 5}, "goals must be a path, got 5"),
    ("WebShop", {"human_goals": "yes"}, "human_goals must be one of True, False, None"),
    ("WebShop", {"mode": "rich"}, "mode must be one of 'text', 'text_rich', got 'rich'"),
    ("WebShop", {"page": ""}, "page must be a path"),
    ("WebShop", {"prices": ["x"]}, "prices must be a path"),
    ("WebShop", {"products": 10**7}, "products must be an integer from 1 to 100000"),
    ("WebShop", {"reward": "offical"}, "Did you mean 'official'"),
    ("WebShop", {"tagger": "nltk"}, "tagger must be one of 'default', 'rule', 'spacy', got 'nltk'"),
]
ABSENT = [
    ("ALFWorld", {"data": "nowhere"}, "there is no folder 'nowhere'"),
    ("GSM8KTool", {"data": "offical"}, "did you mean 'official'"),
    ("GSM8KTool", {"data": "no_such.jsonl"}, "there is no file or folder"),
    ("HotpotQA", {"data": "no/such.json"}, "there is no file or folder"),
    ("PaperSearch", {"corpus": "no_such.jsonl"}, "there are no papers at"),
    ("PaperSearch", {"data": "no_such.jsonl"}, "no file or folder 'no_such.jsonl'"),
]


ROWS = [(name, kwargs, ConfigError, message) for name in NAMES for kwargs, message in EVERYWHERE]
ROWS += [(name, kwargs, ConfigError, message) for name, kwargs, message in WRONG]
ROWS += [(name, kwargs, DataError, message) for name, kwargs, message in ABSENT]


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "message"), ROWS, ids=[f"{name}-{message}" for name, _, _, message in ROWS]
)
def test_a_wrong_argument_is_one_message(name, kwargs, error, message):
    with pytest.raises(error, match=message):
        gym.make(f"AgentR1/{name}-v0", **kwargs).reset(seed=0)
