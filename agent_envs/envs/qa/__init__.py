"""Multi-hop question answering by search: HotpotQA, 2WikiMultihopQA, MuSiQue."""
