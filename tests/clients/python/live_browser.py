"""The example page in a real browser, driven over the DevTools protocol, with the script that simulates stations."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from live import ADDRESS, LIMIT, same
from websockets.sync.client import connect

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHROMIUM = sys.argv[2]
PICTURES = pathlib.Path(sys.argv[3])
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESK = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
             "--allow-file-access-from-files", f"--user-data-dir={self.folder}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            found = re.search(r"DevTools listening on (ws://[^/]+)(/\S+)", line)
            if found:
                break
        self.socket = connect(found[1] + found[2], max_size=None, compression=None)
        self.count = 0
        self.errors = []

    def call(self, method, session=None, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv(timeout=LIMIT))
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def close(self):
        self.process.terminate()
        self.process.wait(LIMIT)
        shutil.rmtree(self.folder, ignore_errors=True)


class Page:
    def __init__(self, browser, url, client=None):
        """`client` is the id of the page, for tests that must not depend on when windows see each other's storage."""
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        if client:
            self.call("Page.enable")
            self.call("Page.addScriptToEvaluateOnNewDocument", source=f"localStorage.client = {json.dumps(client)}")
        self.call("Page.navigate", url=url)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script):
        """Waits until a condition of the page holds; the limit guards against hanging."""
        end = time.monotonic() + LIMIT
        while not self.run(script):
            assert time.monotonic() < end, (script, self.run("document.body.innerText"))
            time.sleep(0.02)

    def reload(self):
        """Loads the page again. Returns once the old document is gone: `Page.reload` answers before that."""
        self.run("window.isOld = true")
        self.call("Page.navigate", url=self.run("location.href"))
        self.until("!window.isOld")

    def add(self, song):
        self.run(f"song.value = {json.dumps(song)}; add.requestSubmit()")

    def wishes(self):
        return self.run("[...document.querySelectorAll('#wishes .song')].map((item) => item.textContent)")

    def picture(self, name, size):
        self.call("Emulation.setDeviceMetricsOverride", **size)
        data = self.call("Page.captureScreenshot", format="png")["data"]
        (PICTURES / name).write_bytes(base64.b64decode(data))


CONNECTED = "document.querySelector('#state')?.dataset.on === 'yes'"
browser = Browser()
try:
    file = (ROOT / "examples/live/wishlist.html").as_uri()
    page = Page(browser, f"{file}?broker={ADDRESS}")
    page.until(CONNECTED)
    same(page.wishes(), [])
    stations = [sys.executable, str(ROOT / "examples/live/stations.py"), "--broker", ADDRESS, "--seed", "1"]
    songs = subprocess.run([*stations, "--song-seconds", "0.01", "--starts", "40"], check=True, text=True,
                           capture_output=True, timeout=LIMIT).stdout
    played = re.findall(r"^(Station \d+): (.*) \(0 delivered", songs, re.M)
    same(len(played), 40)
    wanted = sorted({song for _, song in played})[:6]
    for count, song in enumerate([*wanted, "A song that <b>nobody</b> plays"], 1):
        page.add(song)
        page.until(f"document.querySelectorAll('#wishes .song').length === {count}")
    subprocess.run([*stations, "--song-seconds", "0.01", "--starts", "40"], check=True, capture_output=True, timeout=LIMIT)
    # Each start of a wanted song shows, once, although several listeners have reported it.
    expected = [song for _, song in played if song in wanted]
    page.until(f"document.querySelectorAll('#heard li').length >= {len(expected)}")
    heard = page.run("[...document.querySelectorAll('#heard .song')].map((item) => item.textContent)")
    same(sorted(heard), sorted(expected))
    same(page.run("document.querySelector('#wishes b')"), None)
    page.picture("desk.png", DESK)
    page.picture("phone.png", PHONE)
    same(page.run("document.documentElement.scrollWidth <= innerWidth"), True)

    # The list is the broker's: it is there after a reload, and a second window takes over.
    page.reload()
    page.until(f"document.querySelectorAll('#wishes .song').length === {len(wanted) + 1}")
    page.run(f"document.querySelector('[aria-label={json.dumps('Remove ' + wanted[0])}]').click()")
    page.until(f"document.querySelectorAll('#wishes .song').length === {len(wanted)}")
    second = Page(browser, f"{file}?broker={ADDRESS}", client=page.run("localStorage.client"))
    second.until(CONNECTED)
    second.until(f"document.querySelectorAll('#wishes .song').length === {len(wanted)}")
    same(sorted(second.wishes()), sorted([*wanted[1:], "A song that <b>nobody</b> plays"]))
    page.until("document.querySelector('#state').textContent === 'open in another window'")

    # The same page from the broker itself.
    served = Page(browser, f"http://{ADDRESS}/live/try")
    served.until(CONNECTED)
    same(browser.errors, [])
finally:
    browser.close()
