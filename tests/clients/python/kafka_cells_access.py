"""Kafka's clients with logins over several cells: a cell checks them by its copy of users and rights, and has the first cell
execute requests as the same user.

Arguments: the addresses of Kafka's protocol and of HTTP of two nodes.
"""

import base64
import json
import sys
import time
import urllib.request

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic, ResourcePatternType, ResourceType

kafka, pages = sys.argv[1].split(","), sys.argv[2].split(",")
ROOT = "Basic " + base64.b64encode(b"root:secret of root").decode()
GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()


def put(path, body, login=ROOT):
    headers = {"Content-Type": "application/json", "Authorization": login}
    request = urllib.request.Request(f"http://{pages[0]}{path}", json.dumps(body).encode(), headers, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()


def login(address, user, password):
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def code_of(act):
    try:
        act()
    except KafkaException as error:
        return error.args[0].name()
    return "done"


put("/api/users/root", {"password": "secret of root", "tags": "administrator"}, GUEST)
for user in ["anna", "bob"]:
    put(f"/api/users/{user}", {"password": f"pw-{user}", "tags": ""})
root = AdminClient(login(kafka[0], "root", "secret of root"))
new = [NewTopic(name, 8, config={"stafett.spread": "true"}) for name in ["open", "shut"]]
for made in root.create_topics(new).values():
    made.result()
rules = [
    AclBinding(ResourceType.TOPIC, "open", ResourcePatternType.LITERAL, "User:anna", "*", operation, AclPermissionType.ALLOW)
    for operation in [AclOperation.WRITE, AclOperation.DESCRIBE]
]
for made in root.create_acls(rules).values():
    made.result()


def cells():
    metadata = root.list_topics(timeout=30)
    leaders = {partition.leader for partition in metadata.topics["open"].partitions.values()}
    return [f"{metadata.brokers[number].host}:{metadata.brokers[number].port}" for number in leaders - {-1, metadata.controller_id}]


end = time.monotonic() + 60
while len(cells()) < 3:
    assert time.monotonic() < end
    time.sleep(0.1)


def produced(settings, topic):
    failed = []
    producer = Producer({**settings, "message.timeout.ms": 20_000})
    for number in range(200):
        producer.produce(topic, b"x", key=f"{number}", on_delivery=lambda error, _: failed.append(error.name()) if error else None)
    left = producer.flush(30)
    return left, sorted(set(failed))


# Cells hear of rules a moment after the first one has them.
end = time.monotonic() + 30
while produced(login(kafka[1], "anna", "pw-anna"), "open") != (0, []):
    assert time.monotonic() < end
assert produced(login(kafka[1], "anna", "pw-anna"), "shut") == (0, ["TOPIC_AUTHORIZATION_FAILED"])
assert produced(login(kafka[1], "bob", "pw-bob"), "open") == (0, ["TOPIC_AUTHORIZATION_FAILED"])
for address in cells():
    admins = {user: AdminClient(login(address, user, f"pw-{user}")) for user in ["anna", "bob"]}
    assert set(admins["anna"].list_topics(timeout=20).topics) == {"open"}, address
    assert set(admins["bob"].list_topics(timeout=20).topics) == set(), address
    name = "made-at-" + address.replace(":", "-")
    for user, admin in admins.items():
        refused = code_of(lambda: admin.create_topics([NewTopic(name, 1)])[name].result())
        assert refused in ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"), (user, refused)
        assert code_of(lambda: admin.create_acls(rules)[rules[0]].result()) == "CLUSTER_AUTHORIZATION_FAILED", user
    root_here = AdminClient(login(address, "root", "secret of root"))
    assert code_of(lambda: root_here.create_topics([NewTopic(name, 1)])[name].result()) == "done"
    # Neither a wrong password nor none is enough.
    for settings in [login(address, "anna", "wrong"), {"bootstrap.servers": address, "log_level": 0}]:
        assert code_of(lambda: AdminClient(settings).list_topics(timeout=3)) == "_TRANSPORT", settings

# A right that is taken back counts in all cells.
producer_settings = login(kafka[0], "anna", "pw-anna")
denied = AclBinding(ResourceType.TOPIC, "open", ResourcePatternType.LITERAL, "User:anna", "*", AclOperation.WRITE, AclPermissionType.DENY)
root.create_acls([denied])[denied].result()
end = time.monotonic() + 30
while produced(producer_settings, "open") != (0, ["TOPIC_AUTHORIZATION_FAILED"]):
    assert time.monotonic() < end
