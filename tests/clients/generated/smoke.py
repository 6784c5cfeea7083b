"""A day with the client for Python that openapi-python-client makes of docs/openapi.json.

    smoke.py HTTP_ADDRESS DOCUMENT FOLDER

The client is made in FOLDER. Each answer is of the class that the document says, with its fields.
"""

import pathlib
import subprocess
import sys

address, document, folder = sys.argv[1:]
generator = pathlib.Path(sys.executable).with_name("openapi-python-client")
settings = pathlib.Path(folder, "settings.yaml")
# Nothing tidies the code: that takes longer than making it. Lines of JSON and lists of events are bytes.
settings.write_text(
    "post_hooks: []\n"
    "content_type_overrides:\n"
    "  application/x-ndjson: application/octet-stream\n"
    "  application/cloudevents-batch+json: application/octet-stream\n"
)
subprocess.run(
    [generator, "generate", "--path", document, "--output-path", f"{folder}/client", "--config", settings, "--fail-on-warning"],
    check=True,
    stdout=subprocess.DEVNULL,
)
sys.path.insert(0, f"{folder}/client")

from stafett_client import Client  # noqa: E402
from stafett_client.api.groups import get_groups, put_groups_by_group_offsets  # noqa: E402
from stafett_client.api.messages import post_messages  # noqa: E402
from stafett_client.api.node import get_node_settings  # noqa: E402
from stafett_client.api.queues import (  # noqa: E402
    delete_queues_by_queue,
    get_queues,
    get_queues_by_queue,
    post_queues_by_queue_receive,
    post_queues_by_queue_settle,
    put_queues_by_queue,
)
from stafett_client.api.topics import (  # noqa: E402
    get_topics_by_topic_partitions_by_partition_records,
    post_topics_by_topic_records,
    put_topics_by_topic,
)
from stafett_client.models import (  # noqa: E402
    MessageCount,
    Messages,
    NewOffsets,
    NewQueue,
    NewRecord,
    Outgoing,
    PartitionRecords,
    Problem,
    Produced,
    Queue,
    QueueDetails,
    QueueList,
    Sent,
    Settled,
    Settlement,
    TopicChange,
    Topic,
)

client = Client(base_url=f"http://{address}")

made = put_queues_by_queue.sync_detailed("orders", client=client, body=NewQueue(priority_max=9))
assert made.status_code == 201 and isinstance(made.parsed, Queue), made
assert put_queues_by_queue.sync_detailed("orders", client=client, body=NewQueue(priority_max=9)).status_code == 200
differs = put_queues_by_queue.sync_detailed("orders", client=client, body=NewQueue(priority_max=3))
assert differs.status_code == 409 and isinstance(differs.parsed, Problem), differs
assert differs.parsed.code.value == "exists_differently", differs.parsed

for priority in (1, 7):
    outgoing = Outgoing.from_dict({"to": {"queues": ["orders"]}, "content": {"amount": 12}, "priority": priority})
    sent = post_messages.sync(client=client, body=outgoing)
    assert isinstance(sent, Sent) and sent.queues == ["orders"] and sent.durability == "os", sent

shown = get_queues_by_queue.sync("orders", client=client)
assert isinstance(shown, QueueDetails) and (shown.ready, shown.priority_max, shown.highest_priority) == (2, 9, 7), shown
page = get_queues.sync(client=client, count=1)
assert isinstance(page, QueueList) and [queue.name for queue in page.items] == ["orders"] and page.next_ is None, page

received = post_queues_by_queue_receive.sync("orders", client=client, ack="lease:30s")
assert isinstance(received, Messages), received
(message,) = received.messages
assert (message.priority, message.content) == (7, {"amount": 12}), message
settled = post_queues_by_queue_settle.sync("orders", client=client, body=Settlement(complete=[message.lease]))
assert isinstance(settled, Settled) and (settled.settled, settled.unknown) == (1, []), settled

nothing = get_queues_by_queue.sync("absent", client=client)
assert isinstance(nothing, Problem) and nothing.code.value == "no_such_queue", nothing

topic = put_topics_by_topic.sync_detailed("sales", client=client, body=TopicChange.from_dict({"partitions": 2}))
assert topic.status_code == 201 and isinstance(topic.parsed, Topic), topic
record = NewRecord.from_dict({"key": "a", "value": {"amount": 3}, "headers": {"source": "shop"}})
produced = post_topics_by_topic_records.sync("sales", client=client, body=record, as_="record", partition=1)
assert isinstance(produced, Produced) and (produced.stored, produced.keyed) == (1, 1), produced
read = get_topics_by_topic_partitions_by_partition_records.sync("sales", "1", client=client, from_="earliest")
assert isinstance(read, PartitionRecords) and (read.end, read.next_) == (1, 1), read
(found,) = read.records
assert (found.key, found.headers.to_dict()) == ("a", {"source": "shop"}), found

offsets = NewOffsets.from_dict({"offsets": [{"topic": "sales", "partition": 1, "offset": 0}]})
put_groups_by_group_offsets.sync("billing", client=client, body=offsets)
(group,) = get_groups.sync(client=client).items
assert (group.name, group.lag) == ("billing", 1), group
assert get_node_settings.sync(client=client, q="http").items, "settings of the HTTP listener"

deleted = delete_queues_by_queue.sync("orders", client=client)
assert isinstance(deleted, MessageCount) and deleted.messages == 1, deleted
print("ok")
