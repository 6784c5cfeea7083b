"""MongoDB's own client: each line of the input is a command (extended JSON), and gets a line with its answer."""

import sys

from bson import json_util
from pymongo import MongoClient

database = MongoClient(sys.argv[1])[sys.argv[2]]
for line in sys.stdin:
    answer = database.command(json_util.loads(line))
    print(json_util.dumps(answer, json_options=json_util.RELAXED_JSON_OPTIONS), flush=True)
