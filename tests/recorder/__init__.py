"""Records a real Kafka for the maintainer: `make record KAFKA=4.3.0 SCENARIO=reassign`.

The product itself never talks to a cluster.
"""
