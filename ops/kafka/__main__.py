"""Runs a Kafka broker in the foreground: ``python -m ops.kafka --port 9092 --dir DIR``."""

from __future__ import annotations

from ops.foreground import serve_from_command_line
from ops.kafka import KafkaServer

if __name__ == "__main__":
    serve_from_command_line("BERTH_KAFKA_BOOTSTRAP", 9092, KafkaServer)
