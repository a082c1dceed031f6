"""Text to events: what can a Kafka log line say?"""
