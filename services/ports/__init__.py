"""The ports: what the processes of berth need from a log, a ledger, an outbox, a store and a clock.

Every port has one behavioural suite in ``tests/contract/`` that each of its adapters passes. Adapters raise
``Unavailable`` (retriable, effect unknown) when the other side does not answer, and nothing else for it.
"""
