"""The service under load and attack, on loopback: what it costs, what it withstands.

    python -m benchmarks.service load    requests per second beside the bare model and MLServer
    python -m benchmarks.service fuzz    broken requests of all kinds
    python -m benchmarks.service kill    SIGKILL in the middle of load, and what the audit holds
    python -m benchmarks.service soak    a long run in a short time: memory, threads, files

Servers and clients are processes of their own.
"""
