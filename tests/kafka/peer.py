"""Another client of Kafka, librdkafka's: makes topics and users, and reads a topic. Prints JSON lines.

    peer.py CONFIG create TOPIC PARTITIONS [NAME=VALUE]
    peer.py CONFIG user NAME PASSWORD
    peer.py CONFIG read TOPIC

CONFIG has librdkafka's settings in JSON.
"""

import json
import sys

import confluent_kafka as kafka
from confluent_kafka import admin

WITHIN = 20  # seconds


def create(config, topic, partitions, *settings):
    new = admin.NewTopic(topic, int(partitions), 1, config=dict(one.split("=", 1) for one in settings))
    client = admin.AdminClient(config)  # what it has not answered ends with it
    client.create_topics([new], request_timeout=WITHIN)[topic].result(WITHIN)


def user(config, name, password):
    info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, 4096)
    upsert = admin.UserScramCredentialUpsertion(name, info, password.encode())
    client = admin.AdminClient(config)
    client.alter_user_scram_credentials([upsert], request_timeout=WITHIN)[name].result(WITHIN)


def read(config, topic):
    consumer = kafka.Consumer({**config, "group.id": "peer", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, WITHIN).topics[topic].partitions
    for partition in sorted(partitions):
        at = kafka.TopicPartition(topic, partition, 0)
        low, high = consumer.get_watermark_offsets(at, WITHIN)
        consumer.assign([kafka.TopicPartition(topic, partition, low)])
        while low < high:
            message = consumer.poll(WITHIN)
            if message is None or message.error():
                sys.exit(f"no record {low} of partition {partition}: {message and message.error()}")
            low = message.offset() + 1
            print(json.dumps({
                "partition": partition,
                "key": message.key().decode(),
                "headers": [[name, value.decode()] for name, value in message.headers() or []],
                "time": message.timestamp()[1],
                "value": message.value().decode(),
            }))
    consumer.close()


if __name__ == "__main__":
    {"create": create, "user": user, "read": read}[sys.argv[2]](json.loads(sys.argv[1]), *sys.argv[3:])
