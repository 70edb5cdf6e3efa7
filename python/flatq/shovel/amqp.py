"""A queue of RabbitMQ, or of another server of AMQP 0-9-1, as an end of a shovel, by pika.

The server confirms a persistent message in a durable queue once it is on disk.
"""

from __future__ import annotations

import contextlib
import logging
import time
import urllib.parse
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from ..command import module
from ..errors import Busy, Denied, Empty, Error, Full, Invalid, Missing, NotYours, Unreachable
from ..errors import printable
from .ends import Parcel, Source, Target, TooLarge, key_of

T = TypeVar("T")


class Amqp(Source, Target):
    """The queue at amqp[s]://[USER:PASSWORD@]HOST[:PORT]/[VHOST/]QUEUE[?PIKA'S-OPTIONS]."""

    def __init__(self, url: str) -> None:
        self.pika = module("pika", "pika", "python3-pika", "amqp")
        # Else it prints what we raise
        logging.getLogger("pika").addHandler(logging.NullHandler())
        parts = urllib.parse.urlsplit(url)
        host, (above, _, queue) = parts.netloc.rpartition("@")[2], parts.path.rpartition("/")
        self.place, self.queue = host + parts.path, urllib.parse.unquote(queue)
        self.name = f"{parts.scheme}://{self.place}"
        try:
            place = urllib.parse.urlunsplit(parts._replace(path=above))
            self.parameters = self.pika.URLParameters(place)
        except (ValueError, TypeError, OSError):
            queue = ""
        if not host or not queue or above.count("/") > 1:
            raise Invalid(f"'{self.name}': amqp://USER:PASSWORD@HOST:PORT/VHOST/QUEUE")
        self.connection: Any = None
        self.channel: Any = None

    def ask(self, method: Callable[[], T]) -> T:
        """Call what uses the channel. An error ends the connection."""
        try:
            if self.channel is None:
                self.connection = self.pika.BlockingConnection(self.parameters)
                self.channel = self.connection.channel()
                self.channel.confirm_delivery()
            return method()
        except (self.pika.exceptions.AMQPError, OSError) as error:
            code = 69 if self.channel else 68
            self.close()
            raise self._error(error, code) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection: what we have not acknowledged goes back."""
        connection, self.connection, self.channel = self.connection, None, None
        # A signal may have interrupted pika anywhere
        with contextlib.suppress(Exception):
            if connection:
                connection.close()

    def _error(self, error: Exception, code: int) -> Error:
        kinds = self.pika.exceptions
        # pika wraps what failed at a connection's start
        while error.args and isinstance(error.args[0], Exception):
            error = error.args[0]
        error = getattr(error, "exception", error)
        number = getattr(error, "reply_code", 0)
        said = getattr(error, "reply_text", None) or getattr(error, "strerror", None) or str(error)
        text = f"{self.place}: " + printable((said or type(error).__name__).encode())
        gone = "not found" in said
        if isinstance(error, kinds.UnroutableError):
            return Missing(f"{self.place}: no such queue")
        if isinstance(error, kinds.NackError):
            return Full(f"{self.place}: the queue is full")
        if isinstance(error, kinds.ConnectionBlockedTimeout):
            return Full(f"{self.place}: takes nothing at present")
        if number == 406 and "message size" in said:
            return TooLarge(text)
        if number == 405 or number == 403 and "exclusive" in said:
            return Busy(text)
        denied = number == 403 or isinstance(error, (kinds.ProbableAccessDeniedError,
                                                     kinds.ProbableAuthenticationError))
        if number == 404 or gone and (denied or number == 530):
            return Missing(text)
        return Denied(text) if denied else Unreachable(text, code)

    def give(self, parcel: Parcel, wait: float) -> None:
        # A server that is short of memory stores in the end what it was sent: wait for `patience`
        self.parameters.blocked_connection_timeout = self.patience
        about = self.pika.BasicProperties(delivery_mode=2, message_id=parcel.key)
        self.ask(lambda: self.channel.basic_publish("", self.queue, parcel.body, about,
                                                    mandatory=True))

    def take(self, wait: float) -> Parcel:
        # Without a consumer, "empty" is the server's own word
        method, about, body = self.ask(lambda: self.channel.basic_get(self.queue))
        if method is None:
            # Not by connection.sleep, which a signal does not interrupt
            time.sleep(min(0.2, wait))
            self._serve()
            raise Empty("nothing there")
        channel, tag = self.channel, method.delivery_tag

        def step(what: Callable[[], object]) -> Callable[[], None]:
            """Return a step on the connection that holds the message."""
            def run() -> None:
                with contextlib.suppress(Unreachable):
                    if self.channel is channel:
                        self.ask(what)
                        return
                raise NotYours("the connection that held it has ended")

            return run

        # Without message_id, a message that comes again is not recognised
        key = key_of(self.name, about.message_id or uuid.uuid4().hex, body=body)
        return Parcel(body, key, done=step(lambda: channel.basic_ack(tag)), keep=step(self._serve),
                      back=step(lambda: channel.basic_nack(tag)))

    def _serve(self) -> None:
        """Serve heartbeats."""
        self.ask(lambda: self.connection.process_data_events(0))
