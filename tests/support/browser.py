"""Pages as a reader sees them: Chromium, which is told what to do over a pipe by its own protocol,
and measurements of a page."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from conftest import need

#: functions for Browser.ask: boxes of text, in pixels of the page
MEASURE = r"""
const shown = (element) => element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
/* the boxes of all lines of text, of a page or of what a selector names */
function boxes(selector) {
  const found = [];
  for (const top of document.querySelectorAll(selector || "body")) {
    const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
    for (let node; node = walker.nextNode();) {
      const text = node.textContent.trim(), parent = node.parentElement;
      if (!text || !shown(parent)) continue;
      if (parent.closest("style, script, title, desc, noscript")) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) {
        /* as much of it as the elements around it show */
        const {left, top, right, bottom} = box;
        const one = {text, left, top, right, bottom, whole: right, node};
        for (let at = parent; at; at = at.parentElement)
          if (!["visible", ""].includes(getComputedStyle(at).overflowX) && at.tagName !== "svg") {
            const edge = at.getBoundingClientRect();
            one.left = Math.max(one.left, edge.left);
            one.right = Math.min(one.right, edge.right);
          }
        if (one.right - one.left > 1 && box.height > 1) found.push(one);
      }
    }
  }
  return found;
}
/* pairs of texts that cover each other by more than what is empty above and below letters */
function overlaps() {
  const all = boxes(), found = [];
  all.forEach((a, at) => all.slice(at + 1).forEach((b) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    const least = 0.35 * Math.min(a.bottom - a.top, b.bottom - b.top);
    if (a.node !== b.node && wide > 1 && high > least) found.push([a.text, b.text]);
  }));
  return found;
}
/* texts that stand outside the page or are hidden by their element's edge; a place that scrolls
   hides nothing, an ellipsis says so */
function cut() {
  const {clientWidth: width, scrollWidth} = document.documentElement, found = [];
  if (scrollWidth > width + 1) found.push("the page is " + scrollWidth + " wide");
  for (const one of boxes()) {
    let limit = {left: 0, right: width};
    for (let at = one.node.parentElement; at; at = at.parentElement) {
      const style = getComputedStyle(at), box = at.getBoundingClientRect();
      if (style.textOverflow === "ellipsis" || ["auto", "scroll"].includes(style.overflowX)) {
        limit = null;
        break;
      }
      if (style.overflowX === "hidden" || at.tagName === "svg") {
        limit.left = Math.max(limit.left, box.left);
        limit.right = Math.min(limit.right, box.right);
      }
    }
    if (limit && (one.left < limit.left - 1 || one.whole > limit.right + 1)) found.push(one.text);
  }
  return found;
}
/* what a text is read against: contrast by the rule of WCAG, the least of all texts first */
function contrasts(selector) {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const paint = (color, under) => {
    canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const css = (color) => `rgb(${color.join(",")})`;
  const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (color) => color.map((part) => linear(part / 255))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && scheme.includes("dark");
  return boxes(selector).map((one) => {
    const chain = [];
    for (let at = one.node.parentElement; at; at = at.parentElement) chain.unshift(at);
    const inside = (at) => at instanceof SVGElement && at.tagName !== "svg";
    const ground = chain.filter((at) => !inside(at)).reduce(
      (under, at) => paint(getComputedStyle(at).backgroundColor, css(under)),
      dark ? [18, 18, 18] : [255, 255, 255]);
    const parent = one.node.parentElement, style = getComputedStyle(parent);
    const color = paint(parent instanceof SVGElement ? style.fill : style.color, css(ground));
    const [less, more] = [light(color), light(ground)].sort((a, b) => a - b);
    return {text: one.text, contrast: (more + 0.05) / (less + 0.05)};
  }).sort((a, b) => a.contrast - b.contrast);
}
"""


class Browser:
    """One Chromium for many pages. Its errors become AssertionErrors."""

    def __init__(self, home):
        program = need(next((name for name in ("chromium", "chromium-browser", "google-chrome")
            if shutil.which(name)), "chromium"))
        theirs, self.out = os.pipe()
        self.into, said = os.pipe()
        self.log = open(home / "browser.log", "w+b")
        # it reads requests on descriptor 3 and writes answers to 4: numbers of one digit, which
        # every shell can give
        words = ["sh", "-c", 'exec 3<"/proc/self/fd/$1" 4>"/proc/self/fd/$2"; shift 2; exec "$@"',
            "browser", str(theirs), str(said), program, "--headless", "--no-sandbox",
            "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--remote-debugging-pipe", f"--user-data-dir={home}/profile"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, pass_fds=(theirs, said), env={**os.environ, "HOME": str(home)},
            start_new_session=True)
        os.close(theirs)
        os.close(said)
        self.read = open(self.into, "rb")
        self.number, self.session, self.came = 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
            flatten=True)["sessionId"]
        self.call("Page.enable")

    def _next(self):
        text = bytearray()
        while (byte := self.read.read(1)) != b"\0":
            assert byte, self.said()
            text += byte
        return json.loads(text)

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-3000:]

    def call(self, method, **params):
        self.number += 1
        asked = {"id": self.number, "method": method, "params": params,
            **({"sessionId": self.session} if self.session else {})}
        os.write(self.out, json.dumps(asked).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            self.came.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def open(self, url, width=1280, dark=False, height=900, script=True):
        """Load a page: so wide, light or dark, with or without scripts."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
            "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.came.clear()
        failed = self.call("Page.navigate", url=str(url)).get("errorText")
        assert not failed, (url, failed)
        while not any(one.get("method") == "Page.loadEventFired" for one in self.came):
            self.came.append(self._next())

    def ask(self, expression):
        """The value of an expression of JavaScript, with MEASURE's functions."""
        done = self.call("Runtime.evaluate",
            expression=f"(() => {{{MEASURE}; return ({expression})}})()", returnByValue=True,
            awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def close(self):
        os.close(self.out)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.read.close()
        self.log.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("browser"))
    yield one
    one.close()
