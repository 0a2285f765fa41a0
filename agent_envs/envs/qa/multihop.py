"""2WikiMultihopQA and MuSiQue: HotpotQA's environment with other questions."""

from __future__ import annotations

from agent_envs.envs.qa.env import QAEnv

__all__ = ["MuSiQueEnv", "TwoWikiMultihopQAEnv"]


class TwoWikiMultihopQAEnv(QAEnv):
    """Answer the questions of 2WikiMultihopQA: bridges, comparisons, and comparisons over a bridge.

    ## Description
    As HotpotQA-v0, on 2WikiMultihopQA. Generated questions need 2 to 4 articles: 4 of 10 are bridges, 4 comparisons
    (with 3 or 4 articles over a bridge), 2 yes or no.

    ## Action Space
    As in HotpotQA-v0.

    ## Observation Space
    As in HotpotQA-v0.

    ## Starting State
    As in HotpotQA-v0.

    ## Rewards
    As in HotpotQA-v0. Aliases of answers count where `id_aliases.json` lies beside the rows.

    ## Episode End
    As in HotpotQA-v0.

    ## Information
    As in HotpotQA-v0.

    ## Arguments
    `gym.make("AgentR1/TwoWikiMultihopQA-v0", split="train", data="generated", hops="2-4")`
    - As in HotpotQA-v0; `hops` is "2-4" by default, and the data is prepared with `agentr1 prepare 2wiki`.

    ## Data
    Generated: as in HotpotQA-v0. Official: 167,454 train and 12,576 validation questions (Ho et al. 2020,
    https://github.com/Alab-NII/2wikimultihop), Apache-2.0; no expert.

    ## Version History
    - v0: first version
    """

    dataset = "2wiki"
    default_hops = "2-4"


class MuSiQueEnv(QAEnv):
    """Answer the questions of MuSiQue: bridges over two to four articles.

    ## Description
    As HotpotQA-v0, on MuSiQue. Generated questions are bridges over 2 to 4 articles.

    ## Action Space
    As in HotpotQA-v0.

    ## Observation Space
    As in HotpotQA-v0.

    ## Starting State
    As in HotpotQA-v0.

    ## Rewards
    As in HotpotQA-v0, over the rows' `answer_aliases` too.

    ## Episode End
    As in HotpotQA-v0.

    ## Information
    As in HotpotQA-v0.

    ## Arguments
    `gym.make("AgentR1/MuSiQue-v0", split="train", data="generated", hops="2-4")`
    - As in HotpotQA-v0; `hops` is "2-4" by default, and the data is prepared with `agentr1 prepare musique`.

    ## Data
    Generated: as in HotpotQA-v0. Official: 19,938 train and 2,417 validation questions that have an answer (Trivedi et
    al. 2022, https://github.com/StonyBrookNLP/musique), CC BY 4.0; no expert.

    ## Version History
    - v0: first version
    """

    dataset = "musique"
    default_hops = "2-4"
