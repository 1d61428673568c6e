"""Who may ask the dashboard anything. Every request passes here first.

The dangers are other pages in the same browser, other programs' pages on this machine, and other users of it. So:

- The server listens on the loopback address, and refuses a request whose Host header is not exactly its own address
  (an attacker's name may resolve to 127.0.0.1).
- The address that the command prints has a token that works once. It is exchanged for a session cookie, which scripts
  cannot read and which the browser sends with no request that another site causes.
- Browsers send cookies to every port of a host. So all pages are below a random path, and the cookie is for this path:
  another server on this machine, which cannot know the path, is never sent the cookie.
- A request that the browser marks as caused by another origin is refused, whatever cookie it has.
- A change needs the session's form token and the right Origin header too.
- Nothing may be framed, kept, or loaded from elsewhere, and nothing may be read by another origin.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "dpspca_session"
SECRET_BYTES: Final = 32
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of every page of ours: nothing inline, and nothing from elsewhere."""
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer", browsers would not name the origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_CHANGING: Final = "POST"
_METHODS: Final = frozenset({"GET", _CHANGING})
_OWN: Final = frozenset({"same-origin", "none"})
"""The values of Sec-Fetch-Site for requests that no other origin caused."""


@dataclass
class Guard:
    """The secrets of one run, and the checks that need them."""

    host: str
    """The only Host header that is served: address and port."""
    base: str
    """The random path below which all pages are."""
    form_token: str
    _token: str
    _session: str = ""
    app: ASGIApp | None = field(default=None)

    @classmethod
    def draw(cls, host: str) -> Self:
        """Draw the secrets of a run."""
        base, form_token, token = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(3))
        return cls(host, f"/{base}", form_token, token)

    @property
    def entrance(self) -> str:
        """The address to open, which works once."""
        return f"http://{self.host}{self.base}/enter?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on to the application. All replies get the same headers."""
        if scope["type"] != "http":
            return  # no web sockets, and nothing to start

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                more = [
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given
                ]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        refused = self._refusal(scope)
        if refused is None and scope["path"] == f"{self.base}/enter":
            refused = self._enter(scope)
        assert self.app
        await (refused or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return why a request is refused, or None."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        is_own_origin = method != _CHANGING or headers.getlist("origin") == [f"http://{self.host}"]
        is_own = headers.get("sec-fetch-site", "none") in _OWN and is_own_origin
        is_known = path == f"{self.base}/enter" or self._has_session(headers)
        for holds, why, status in (
            (headers.getlist("host") == [self.host], "This address is not served.", 421),
            (path.startswith(f"{self.base}/"), "There is nothing here. Open the address that was printed.", 404),
            (method in _METHODS, "This method is not served.", 405),
            (is_own, "Another page asked for this.", 403),
            (is_known, "This browser has no session. Start the command again, and open the address it prints.", 403),
        ):
            if not holds:
                return _refused(why, status)
        return None

    def _enter(self, scope: Scope) -> Response:
        """Exchange the token for a session."""
        query = scope["query_string"].decode("ascii", "replace")
        given = query.removeprefix("token=")
        if not self._token or not hmac.compare_digest(given.encode(), self._token.encode()):
            return _refused("This address was used already, or is wrong. Start the command again.")
        self._token, self._session = "", secrets.token_urlsafe(SECRET_BYTES)
        reply = RedirectResponse(f"{self.base}/", 303)
        reply.set_cookie(COOKIE, self._session, path=self.base, httponly=True, samesite="strict")
        return reply

    def _has_session(self, headers: Headers) -> bool:
        """Look for the session among all cookies: other servers on this machine may set some of the same name."""
        given = [part.strip().encode() for each in headers.getlist("cookie") for part in each.split(";")]
        session = f"{COOKIE}={self._session}".encode()
        return bool(self._session) and any(hmac.compare_digest(each, session) for each in given)

    def is_own_form(self, token: str) -> bool:
        """Tell whether a form was made by this run's pages."""
        return hmac.compare_digest(token.encode(), self.form_token.encode())


def _refused(why: str, status: int = 403) -> Response:
    return PlainTextResponse(f"{why}\n", status)
