"""A client that is generated from the API's document: queues, messages, topics, records, and refusals.

    http_generated.py HOST:PORT FOLDER

It is generated into FOLDER.
"""

import importlib
import pathlib
import subprocess
import sys
import urllib.request


def generated(address, folder):
    """Generates the package, and returns its name."""
    document = folder / "openapi.json"
    with urllib.request.urlopen(f"http://{address}/v1/openapi.json") as answer:
        document.write_bytes(answer.read())
    generator = pathlib.Path(sys.executable).with_name("openapi-python-client")
    command = [generator, "generate", "--path", document, "--output-path", folder / "stafett_api", "--meta", "none"]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    missing = [line for line in said.stdout.splitlines() if "will not be generated" in line]
    assert not missing, missing
    sys.path.insert(0, str(folder))
    return "stafett_api"


def main():
    address, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    package = generated(address, folder)
    models = importlib.import_module(f"{package}.models")
    client = importlib.import_module(package).Client(base_url=f"http://{address}")

    def call(tag, name, *path, **arguments):
        module = importlib.import_module(f"{package}.api.{tag}.{name}")
        return module.sync(*path, client=client, **arguments)

    queue = call("queues", "put_queues_by_queue", "orders", body=models.NewQueue(priority_max=10))
    assert (queue.name, queue.priority_max, queue.ready) == ("orders", 10, 0), queue
    message = models.Outgoing(
        to=models.To(queues=["orders"]), content="hello", priority=7, headers=models.OutgoingHeaders.from_dict({"a": "b"})
    )
    sent = call("messages", "post_messages", body=message)
    assert (sent.queues, sent.durability, sent.repeated) == (["orders"], "sync", False), sent
    received = call("queues", "post_queues_by_queue_receive", "orders", ack="lease:30s")
    (found,) = received.messages
    assert (found.content, found.priority, found.headers["a"]) == ("hello", 7, "b"), found
    settled = call("queues", "post_queues_by_queue_settle", "orders", body=models.Settlement(complete=[found.lease]))
    assert (settled.settled, settled.unknown) == (1, []), settled
    listed = call("queues", "get_queues", sort="-ready", count=10)
    assert (listed.total, listed.items[0].name) == (1, "orders"), listed

    topic = call("topics", "put_topics_by_topic", "events", body=models.TopicChange(partitions=2))
    assert (topic.name, topic.partitions) == ("events", 2), topic
    topics = call("topics", "get_topics")
    assert [topic.name for topic in topics.items] == ["events"], topics

    refused = call("queues", "get_queues_by_queue", "missing")
    assert (refused.code, refused.status) == ("no_such_queue", 404), refused
    gone = call("queues", "delete_queues_by_queue", "orders", if_empty=True)
    assert gone.messages == 0, gone


main()
