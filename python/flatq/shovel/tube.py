"""A tube of a beanstalkd, as an end of a shovel, by pystalk.

Not by greenstalk, which cannot be given a timeout.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from typing import Any, TypeVar

from ..command import needs
from ..errors import Busy, Empty, Error, Full, Internal, Invalid, NotYours, Unreachable, printable
from .ends import Parcel, Source, Target, TooLarge, key_of

T = TypeVar("T")
#: The priority of a message without one: flatq's usual
PRIORITY, TTR = 65536, 60
#: Seconds for an answer: more than any reserve waits
ANSWER = 15


class Client:
    """The tube at beanstalk://HOST[:PORT][/TUBE], else port 11300 and tube default."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.tube = urllib.parse.unquote(parts.path.lstrip("/")) or "default"
        try:
            host, port = parts.hostname or "", parts.port or 11300
        except ValueError:
            host, port = "", 0
        if not host or not re.fullmatch(r"(?!-)[A-Za-z0-9+/;.$_()-]{1,200}", self.tube):
            raise Invalid(f"'{url}': beanstalk://HOST:PORT/TUBE", 65)
        try:
            import pystalk  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError:
            raise needs("shovel", "pystalk", "pystalk", "", "beanstalk") from None
        self.pystalk = pystalk
        self.server = pystalk.BeanstalkClient(host, port, socket_timeout=ANSWER)
        self.place = f"{host}:{port}"
        #: Identifies a start of the server, if job ids begin anew with each; else ""
        self.incarnation = ""

    def ask(self, method: Callable[..., T], *words: Any, **more: Any) -> T:
        """Call a method of pystalk's. Raises the error for what the server answered."""
        connected = self.server.socket is not None
        try:
            return method(*words, **more)
        except (self.pystalk.BeanstalkConnectionError, OSError, UnicodeError) as error:
            self.server.close()
            error = getattr(error, "err", error)
            connected = connected or isinstance(error, ConnectionResetError)
            text = getattr(error, "strerror", None) or str(error)
            raise Unreachable(f"{self.place}: {text}", 69 if connected else 68) from None
        except self.pystalk.BeanstalkError as error:
            raise self._error(printable(error.message.encode())) from None
        except ValueError:
            self.server.close()
            raise Internal(f"{self.place}: its answer is not understood", 70) from None
        except BaseException:
            # Half an exchange: the next answer would be this one's
            self.server.close()
            raise

    def _error(self, word: str) -> Error:
        if word in ("TIMED_OUT", "DEADLINE_SOON"):
            return Empty("nothing there", 66)
        if word == "NOT_FOUND":
            return NotYours(f"{self.place}: the job is no longer ours", 66)
        if word == "JOB_TOO_BIG":
            return TooLarge("too large for it", 65)
        if word in ("OUT_OF_MEMORY", "DRAINING"):
            return Full(f"{self.place}: {word}", 75)
        self.server.close()
        if word == "INTERNAL_ERROR":
            return Busy(f"{self.place}: {word}", 75)
        return Internal(f"{self.place}: {word}", 70)

    def close(self) -> None:
        """End the connection; what it holds is released by the server."""
        self.server.close()


class Tube(Target):
    """A tube, to which messages go."""

    def __init__(self, url: str) -> None:
        self.client, self.name = Client(url), url
        self.close = self.client.close  # type: ignore[method-assign]

    def give(self, parcel: Parcel, wait: float) -> None:
        client = self.client
        client.ask(client.server.use, client.tube)
        priority = PRIORITY if parcel.priority is None else parcel.priority
        ttr = TTR if parcel.lease is None else parcel.lease
        client.ask(client.server.put_job, parcel.body, pri=priority, ttr=ttr)


class _Job(Parcel):
    def __init__(self, client: Client, job: Any, about: dict[str, Any]) -> None:
        # The server and, if ids begin anew with each start of it, this start; tube and id
        key = key_of(client.place, client.incarnation, client.tube, job.job_id, body=job.job_data)
        super().__init__(job.job_data, key, about["pri"], about["ttr"])
        self.client, self.job = client, job

    def done(self) -> None:
        self.client.ask(self.client.server.delete_job, self.job)

    def keep(self) -> None:
        """Nothing: pystalk has no touch."""

    def back(self) -> None:
        self.client.ask(self.client.server.release_job, self.job, self.priority)

    def bury(self) -> None:
        self.client.ask(self.client.server.bury_job, self.job, self.priority)


class TubeSource(Source):
    """A message in hand is reserved by our connection: when that ends, it is back."""

    def __init__(self, url: str) -> None:
        self.client, self.name = Client(url), url
        self.close = self.client.close  # type: ignore[method-assign]

    def take(self, wait: float) -> Parcel:
        client = self.client
        if client.server.socket is None:
            client.ask(client.server.watch, client.tube)
            about = client.ask(client.server.stats)
            # The ids of flatq's door go on over restarts, and its pid is that of one connection
            lasts = about.get("binlog-current-index") or about.get("version") == "flatq"
            client.incarnation = "" if lasts else f"{about.get('id')} {about.get('pid')}"
        job = client.ask(client.server.reserve_job, int(wait))
        try:
            return _Job(client, job, client.ask(client.server.stats_job, job))
        except BaseException as error:
            # Without its statistics it would have another priority: end the connection, so that
            # it goes back
            client.close()
            if isinstance(error, NotYours):
                raise Busy(str(error), 75) from None
            raise
