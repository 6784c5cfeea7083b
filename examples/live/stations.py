#!/usr/bin/env python3
"""Simulates radio stations: each plays one song after the other, and some of its listeners report what starts.

What is reported goes to the broker with POST, one topic per song; the same start is reported by several listeners.
"""

import argparse
import heapq
import json
import random
import time
import urllib.request

ARTISTS = ["Abba", "Nena", "Kraftwerk", "Robyn", "Daft Punk", "Björk", "Air", "Yello", "The Knife", "Roxette"]
TITLES = ["Horizon", "Midnight Call", "Paper Moon", "Northern Line", "Satellite", "Neon Rain", "Letters", "Slow Train"]
SONGS = [f"{artist} – {title}" for artist in ARTISTS for title in TITLES]


def post(broker, messages):
    body = json.dumps(messages).encode()
    request = urllib.request.Request(f"http://{broker}/live/publish", data=body)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", default="127.0.0.1:7070", metavar="HOST:PORT")
    parser.add_argument("--stations", type=int, default=20)
    parser.add_argument("--song-seconds", type=float, default=20, help="how long a song is")
    parser.add_argument("--listeners", type=int, default=3, help="how many report each start")
    parser.add_argument("--starts", type=int, help="end after so many songs have started")
    parser.add_argument("--seed", type=int, help="play the same again")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    begun = time.monotonic()
    # When each station's next song starts.
    due = [(chance.random() * options.song_seconds, f"Station {number + 1}") for number in range(options.stations)]
    heapq.heapify(due)
    count = 0
    while options.starts is None or count < options.starts:
        at, station = heapq.heappop(due)
        time.sleep(max(0.0, begun + at - time.monotonic()))
        song = chance.choice(SONGS)
        now = int(time.time() * 1000)
        reports = [{"topic": song, "payload": {"station": station, "since": now}, "timestamp": now}]
        try:
            answer = post(options.broker, reports * options.listeners)
            print(f"{station}: {song} ({answer['receivers']} delivered, {answer['duplicates']} filtered)", flush=True)
        except OSError as error:
            print(f"{station}: {song} could not be reported: {error}", flush=True)
        heapq.heappush(due, (at + options.song_seconds, station))
        count += 1


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
