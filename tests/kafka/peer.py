"""Another client of Kafka, librdkafka's: makes topics, and prints the records of one as JSON lines.

    peer.py CONFIG create TOPIC PARTITIONS
    peer.py CONFIG read TOPIC

CONFIG has librdkafka's settings in JSON.
"""

import json
import sys

import confluent_kafka as kafka
from confluent_kafka import admin

WITHIN = 20  # seconds


def create(config, topic, partitions):
    new = admin.NewTopic(topic, int(partitions), 1)
    client = admin.AdminClient(config)  # what it has not answered ends with it
    client.create_topics([new], request_timeout=WITHIN)[topic].result(WITHIN)


def read(config, topic):
    # Where a partition ends is asked by reading: Tansu 0.6.0 names the offset of the last batch as that of the last record.
    consumer = kafka.Consumer({**config, "group.id": "peer", "enable.auto.commit": False, "enable.partition.eof": True})
    for partition in sorted(consumer.list_topics(topic, WITHIN).topics[topic].partitions):
        consumer.assign([kafka.TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(WITHIN)
            if message is None:
                sys.exit(f"partition {partition} does not end within {WITHIN} s")
            if message.error():
                if message.error().code() == kafka.KafkaError._PARTITION_EOF:
                    break
                sys.exit(f"partition {partition}: {message.error()}")
            print(json.dumps({
                "partition": partition,
                "key": message.key().decode(),
                "headers": [[name, value.decode()] for name, value in message.headers() or []],
                "time": message.timestamp()[1],
                "value": message.value().decode(),
            }))
    consumer.close()


if __name__ == "__main__":
    {"create": create, "read": read}[sys.argv[2]](json.loads(sys.argv[1]), *sys.argv[3:])
