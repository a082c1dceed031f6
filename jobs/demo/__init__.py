"""The bundled incident of `kafka-audit demo`: logs of three brokers of Kafka 2.5.1."""
