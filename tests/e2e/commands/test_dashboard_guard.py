"""Nothing but its own pages in one browser can read the dashboard or decide with it. Browser and server are real."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlencode, urlsplit

import pytest
from approvals import BEN, MARIA, Site, human_policy, waiting_job
from browsers import BROWSER, chromium, dashboard_of, problems_of
from local_federation import Enrolment
from timeouts import TIMEOUT

from dpspca.provider.approval import ApprovalQueue

NEEDS_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs chromium, which is not installed")
NASTY = (
    "<script>document.title = 'run'</script>",
    "<img src=x onerror=\"document.title='run'\">",
    "plain",
    "\u202etxet",
)


@dataclass
class ProviderHarness:
    """A provider's folder with a job that waits, and its dashboard."""

    site: Site
    job: str
    address: str

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    @property
    def base(self) -> str:
        return urlsplit(self.address).path.removesuffix("/enter")

    @property
    def queue(self) -> ApprovalQueue:
        return self.site.office.queue

    @property
    def decided(self) -> list[str]:
        return [each.read().verdict for each in self.queue.decisions(self.job)]

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
        """Send one request, and return the status, the headers and the body of the reply."""
        sent = {"host": self.host} | {name.replace("_", "-"): value for name, value in headers.items() if value}
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in (sent | ({"content-length": str(len(body))} if body else {})).items():
            connection.putheader(name, value)
        connection.endheaders(body.encode())
        reply = connection.getresponse()
        found = (reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read().decode())
        connection.close()
        return found

    def enter(self) -> str:
        """Exchange the token for a session, and return the cookie."""
        parts = urlsplit(self.address)
        status, headers, _ = self.ask("GET", f"{parts.path}?{parts.query}")
        assert (status, headers["location"]) == (303, f"{self.base}/")
        return headers["set-cookie"]


@contextmanager
def approvals_in(folder: Path) -> Iterator[ProviderHarness]:
    enrolment = Enrolment.create(folder / "town")
    site = Site.made(enrolment, "north", human_policy(MARIA, BEN, needed=2))
    job = waiting_job(enrolment, site, NASTY)
    with dashboard_of(site.config) as address:
        yield ProviderHarness(site, job, address)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderHarness]:
    with approvals_in(tmp_path_factory.mktemp("approvals")) as made:
        yield made


@pytest.fixture(scope="module")
def cookie(harness: ProviderHarness) -> str:
    return harness.enter()


# --- Without a browser ------------------------------------------------------------------------------------------------


def test_t43_the_address_works_once_and_the_cookie_is_strict(harness: ProviderHarness, cookie: str) -> None:
    parts = urlsplit(harness.address)
    assert harness.host.startswith("127.0.0.1:")
    for word in ("HttpOnly", "SameSite=strict", f"Path={harness.base}"):
        assert word in cookie
    assert harness.ask("GET", f"{parts.path}?{parts.query}")[0] == 403
    for query in ("", "token=", "token=x", f"{parts.query}x"):
        assert harness.ask("GET", f"{parts.path}?{query}")[0] == 403
    assert harness.ask("GET", f"{harness.base}/", cookie=cookie.split(";", maxsplit=1)[0])[0] == 200


def test_t43_cookies_of_other_servers_on_this_machine_end_no_session(harness: ProviderHarness, cookie: str) -> None:
    """A browser sends them too, because cookies belong to a host and not to a port."""
    session = cookie.split(";", maxsplit=1)[0]
    for sent in (
        f"{session}; dpspca_session=theirs",
        f"dpspca_session=theirs; {session}",
        f'x="; {session}',
        f"{session};\xff",
    ):
        assert harness.ask("GET", f"{harness.base}/", cookie=sent)[0] == 200, sent
    assert harness.ask("GET", f"{harness.base}/", cookie="dpspca_session=theirs; dpspca_session=")[0] == 403


def test_t43_every_reply_has_the_headers_that_keep_others_out(harness: ProviderHarness, cookie: str) -> None:
    session = cookie.split(";", maxsplit=1)[0]
    for path, has_cookie in ((f"{harness.base}/", True), ("/", False), (f"{harness.base}/nothing/here", True)):
        _, headers, _ = harness.ask("GET", path, cookie=session if has_cookie else "")
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "localhost:80"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"cookie": ""}, 403),
        ({"cookie": "dpspca_session="}, 403),
        ({"cookie": "dpspca_session=wrong"}, 403),
        ({"cookie": 'dpspca_session="; x'}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
    ],
)
def test_t43_a_page_is_read_only_by_its_own_session_and_origin(
    harness: ProviderHarness, cookie: str, changes: dict[str, str], status: int
) -> None:
    sent = {"cookie": cookie.split(";", maxsplit=1)[0]} | changes
    found, _, body = harness.ask("GET", f"{harness.base}/approval", **sent)
    assert found == status
    assert (harness.job[:12] in body) == (status == 200)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "HEAD", "CONNECT"])
def test_t43_other_methods_and_paths_are_not_served(harness: ProviderHarness, cookie: str, method: str) -> None:
    session = cookie.split(";", maxsplit=1)[0]
    assert harness.ask(method, f"{harness.base}/", cookie=session)[0] in {400, 404, 405}
    for path in (
        "/",
        "/static/style.css",
        f"{harness.base}",
        f"{harness.base}/static/../app.py",
        f"{harness.base}/static/%2e%2e/app.py",
    ):
        assert harness.ask("GET", path, cookie=session)[0] == 404


def form_token_of(harness: ProviderHarness, session: str) -> str:
    _, _, body = harness.ask("GET", f"{harness.base}/approval/{harness.job}", cookie=session)
    return body.split('name="form_token" value="')[1].split('"')[0]


@pytest.mark.slow
def test_t43_a_decision_needs_session_origin_and_form_token(harness: ProviderHarness, cookie: str) -> None:
    session = cookie.split(";", maxsplit=1)[0]
    form = {"form_token": form_token_of(harness, session), "job": harness.job, "verdict": "approve", "person": MARIA}
    good = {"cookie": session, "origin": f"http://{harness.host}"}

    def send(changes: dict[str, str] | None = None, **headers: str) -> int:
        body = urlencode({name: value for name, value in (form | (changes or {})).items() if value})
        return harness.ask("POST", f"{harness.base}/decide", body, **good | headers)[0]

    for headers in (
        {"origin": ""},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": f"http://localhost:{harness.host.rpartition(':')[2]}"},
        {"cookie": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ):
        assert send(**headers) == 403, headers
    assert send(host="evil.example") == 421
    assert send({"form_token": ""}) == 403
    assert send({"form_token": form["form_token"] + "x"}) == 403
    assert send({"reason": "x" * 2**15}) == 413
    assert harness.decided == []
    for changes in ({"verdict": "perhaps"}, {"verdict": ""}, {"person": "eve"}, {"job": "f" * 64}, {"job": ""}):
        assert send(changes) == 400, changes
    assert send({"verdict": "reject"}) == 400  # without a reason
    assert harness.ask("GET", f"{harness.base}/decide?{urlencode(form)}", **good)[0] == 404
    assert harness.decided == []
    assert send() == 303
    assert harness.decided == ["approve"]


# --- In a browser -----------------------------------------------------------------------------------------------------

ATTACK = """<!DOCTYPE html><title>free cake</title><body><script>
const target = %(target)s, form = %(form)s, found = [];
async function attempt(name, work) {
  try { found.push([name, await work()]); } catch (error) { found.push([name, "failed"]); }
}
function element(tag, attributes) {
  return new Promise((done) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.onload = () => done("loaded"); made.onerror = () => done("failed");
    document.body.append(made); setTimeout(() => done("silent"), 3000);
  });
}
(async () => {
  for (const mode of ["cors", "no-cors"]) {
    await attempt("fetch " + mode, async () =>
      (await fetch(target + "/approval", { mode, credentials: "include" })).text());
    await attempt("post " + mode, async () => (await fetch(target + "/decide",
      { mode, method: "POST", credentials: "include", body: new URLSearchParams(form) })).text());
  }
  await attempt("events", () => new Promise((done) => {
    const source = new EventSource(target + "/events", { withCredentials: true });
    source.onopen = () => done("open"); source.onerror = () => done("failed");
  }));
  await attempt("image", () => element("img", { src: target + "/approval" }));
  await attempt("script", () => element("script", { src: target + "/static/live.js" }));
  await attempt("style", () => element("link", { rel: "stylesheet", href: target + "/static/style.css" }));
  const frame = document.createElement("iframe");
  frame.src = target + "/approval"; document.body.append(frame);
  await new Promise((done) => setTimeout(done, 1500));
  await attempt("frame", async () => frame.contentDocument ? frame.contentDocument.body.innerText : "closed");
  const opened = window.open(target + "/approval");
  await new Promise((done) => setTimeout(done, 1500));
  await attempt("window", async () => opened ? opened.document.body.innerText : "closed");
  const inner = document.createElement("form");
  inner.action = target + "/decide"; inner.method = "post"; inner.target = "hidden";
  for (const [name, value] of Object.entries(form)) {
    const input = document.createElement("input"); input.name = name; input.value = value; inner.append(input);
  }
  const hidden = document.createElement("iframe"); hidden.name = "hidden";
  document.body.append(inner, hidden); inner.submit();
  await new Promise((done) => setTimeout(done, 1500));
  document.body.dataset.found = JSON.stringify(found);
})();
</script>"""


class Hostile:
    """A web server with a hostile page. It keeps the cookies that browsers send to it."""

    def __init__(self) -> None:
        self.page = ""
        self.cookies: list[str] = []
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hostile.cookies += self.headers.get_all("cookie") or []
                content = hostile.page.encode()
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.slow
@NEEDS_BROWSER
@pytest.mark.parametrize("origin", ["127.0.0.1", pytest.param("localhost", marks=pytest.mark.nightly), "evil.example"])
def test_t43_a_hostile_page_in_the_same_browser_neither_reads_nor_decides(origin: str, tmp_path: Path) -> None:
    """The worst case: the page knows the secret path and the form token. Another port of one host is even same-site."""
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with approvals_in(tmp_path) as harness, Hostile() as hostile, chromium(rules) as browser:
        context = browser.new_context()
        own = context.new_page()
        own.goto(harness.address)
        own.goto(f"http://{harness.host}{harness.base}/approval/{harness.job}")
        token = own.input_value('input[name="form_token"]')
        target = f"http://{harness.host}{harness.base}"
        form = {"form_token": token, "job": harness.job, "verdict": "approve", "person": MARIA}
        hostile.page = ATTACK % {"target": json.dumps(target), "form": json.dumps(form)}
        page = context.new_page()
        page.goto(f"http://{origin}:{hostile.port}/")
        page.wait_for_function("document.body.dataset.found", timeout=1000 * TIMEOUT)
        found = json.loads(page.evaluate("document.body.dataset.found"))
        assert len(found) == 10
        for name, outcome in found:
            assert outcome in {"failed", "closed", ""}, (name, outcome)
        assert harness.decided == []
        assert hostile.cookies == []
        own.reload()
        assert harness.job[:12] in own.inner_text("h1")


@pytest.mark.slow
@NEEDS_BROWSER
def test_t43_a_name_that_was_made_to_point_here_is_not_served(tmp_path: Path) -> None:
    """DNS rebinding: the attacker's own name resolves to this machine, on the dashboard's port."""
    with approvals_in(tmp_path) as harness, chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as browser:
        page = browser.new_page()
        port = harness.host.rpartition(":")[2]
        reply = page.goto(f"http://evil.example:{port}{harness.base}/enter?{urlsplit(harness.address).query}")
        assert reply
        assert reply.status == 421
        page.goto(harness.address)  # the token was not used up
        assert page.title().startswith("Overview")


@pytest.mark.slow
@NEEDS_BROWSER
def test_names_that_an_analyst_chose_are_shown_as_text(tmp_path: Path) -> None:
    with approvals_in(tmp_path) as harness, chromium() as browser:
        page = browser.new_page()
        problems = problems_of(page)
        page.goto(harness.address)
        page.goto(f"http://{harness.host}{harness.base}/approval/{harness.job}")
        assert NASTY[0] in page.inner_text("main")
        assert r"\u202etxet" in page.inner_text("main")
        assert page.title() == f"Job {harness.job[:12]} - dpspca"
        assert problems == []
