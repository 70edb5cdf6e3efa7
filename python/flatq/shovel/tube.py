"""A tube of a beanstalkd, as an end of a shovel, by pystalk: greenstalk takes no timeout."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from typing import Any, TypeVar

from ..command import module
from ..errors import Busy, Empty, Error, Full, Internal, Invalid, NotYours, Unreachable, printable
from .ends import Parcel, Source, Target, TooLarge, key_of

T = TypeVar("T")
#: The priority and lease of a message without one: flatq's usual
PRIORITY, TTR = 65536, 60
#: Seconds for an answer: more than any reserve waits
ANSWER = 15
#: What the server's errors mean
ERRORS: dict[str, type[Error]] = {
    "TIMED_OUT": Empty, "DEADLINE_SOON": Empty, "NOT_FOUND": NotYours, "JOB_TOO_BIG": TooLarge,
    "OUT_OF_MEMORY": Full, "DRAINING": Full, "INTERNAL_ERROR": Busy,
}


class Tube(Source, Target):
    """The tube at beanstalk://HOST[:PORT][/TUBE], else port 11300 and tube default.

    A message in hand is reserved by our connection: when that ends, it is back.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.name, self.tube = url, urllib.parse.unquote(parts.path.lstrip("/")) or "default"
        try:
            host, port = parts.hostname or "", parts.port or 11300
        except ValueError:
            host, port = "", 0
        if not host or not re.fullmatch(r"(?!-)[A-Za-z0-9+/;.$_()-]{1,200}", self.tube):
            raise Invalid(f"'{url}': beanstalk://HOST:PORT/TUBE")
        self.pystalk = module("pystalk", "pystalk", "", "beanstalk")
        self.server = self.pystalk.BeanstalkClient(host, port, socket_timeout=ANSWER)
        self.place = f"{host}:{port}"
        #: Identifies a start of the server, if job ids begin anew with each; else ""
        self.incarnation = ""

    def close(self) -> None:
        self.server.close()

    def ask(self, method: Callable[..., T], *words: Any, **more: Any) -> T:
        """Call a method of pystalk's. Raises the error for what the server answered."""
        connected = self.server.socket is not None
        try:
            return method(*words, **more)
        except (self.pystalk.BeanstalkConnectionError, OSError, UnicodeError) as error:
            self.close()
            error = getattr(error, "err", error)
            connected = connected or isinstance(error, ConnectionResetError)
            text = getattr(error, "strerror", None) or str(error)
            raise Unreachable(f"{self.place}: {text}", 69 if connected else 68) from None
        except self.pystalk.BeanstalkError as error:
            word = printable(error.message.encode())
            kind = ERRORS.get(word, Internal)
            if kind in (Busy, Internal):
                self.close()
            raise kind(f"{self.place}: {word}") from None
        except BaseException:
            # The next answer would be this one's
            self.close()
            raise

    def give(self, parcel: Parcel, wait: float) -> None:
        self.ask(self.server.use, self.tube)
        self.ask(self.server.put_job, parcel.body,
                 pri=PRIORITY if parcel.priority is None else parcel.priority,
                 ttr=TTR if parcel.lease is None else parcel.lease)

    def take(self, wait: float) -> Parcel:
        server = self.server
        if server.socket is None:
            self.ask(server.watch, self.tube)
            about = self.ask(server.stats)
            # flatq's door keeps its ids, and its pid is that of a connection
            lasts = about.get("binlog-current-index") or about.get("version") == "flatq"
            self.incarnation = "" if lasts else f"{about.get('id')} {about.get('pid')}"
        job = self.ask(server.reserve_job, int(wait))
        try:
            about = self.ask(server.stats_job, job)
            priority = about["pri"]
            key = key_of(self.place, self.incarnation, self.tube, job.job_id, body=job.job_data)
            # pystalk has no touch, so `keep` does nothing
            return Parcel(job.job_data, key, priority, about["ttr"],
                          done=lambda: self.ask(server.delete_job, job),
                          back=lambda: self.ask(server.release_job, job, priority),
                          bury=lambda: self.ask(server.bury_job, job, priority))
        except BaseException as error:
            # Only the connection's end gives it back with its priority
            self.close()
            if isinstance(error, NotYours):
                raise Busy(str(error)) from None
            raise
