"""MongoDB's own client: each line of the input is a command, and gets a line with its answer.

A command is a list of its name, its value, and its further fields (extended JSON).
"""

import sys

from bson import json_util
from pymongo import MongoClient

database = MongoClient(sys.argv[1])[sys.argv[2]]
database.command("ping")
print("ready", flush=True)
for line in sys.stdin:
    name, value, fields = json_util.loads(line)
    answer = database.command(name, value, **fields)
    print(json_util.dumps(answer, json_options=json_util.RELAXED_JSON_OPTIONS), flush=True)
