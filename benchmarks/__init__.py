"""Measuring what the library costs and what it is worth, beside its rivals.

    race.py                  the one race: contestants take turns in one process, ratios are told
    __main__, sections       `python -m benchmarks`: races on the paper's MNIST and synthetic cases
    deciding, growth,        the gates on speed: decisions by rule, more rows, rows on disk, shards,
    larger_than_memory,      a GPU, and FAISS by the number of features
    sharding, gpu,
    beside_faiss
    scoreboard, leaves,      what assertions are worth: beside peers, by layers of trees, on a model
    magika, alarm            of others, over streams
    service                  requests per second, kills, broken requests, a long run

Times do not carry over to other machines; ratios do.
"""
