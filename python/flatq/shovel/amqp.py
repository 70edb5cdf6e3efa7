"""A queue of RabbitMQ, or of another server of AMQP 0-9-1, as an end of a shovel, by pika.

The server confirms a message once it is on disk, if the queue is durable and the message persistent; ours are. A queue
that drops messages by itself (max-length without overflow=reject-publish, a time to live, RabbitMQ 4's limit of 20 deliveries) drops ours as well.

pika's BlockingConnection is not used: it waits for an acknowledgement without end, and a second try would store the message twice."""

from __future__ import annotations

import contextlib
import logging
import re
import time
import urllib.parse
import uuid
from collections.abc import Callable
from typing import Any

from ..command import needs
from ..errors import Busy, Denied, Empty, Error, Full, Invalid, Missing, NotYours, Unreachable, printable
from .ends import LEASE, Connected, Parcel, Target, TooLarge, key_of

#: Seconds for an answer, for all of a new connection (more than pika's own limit), and until a message without acknowledgement is sent again
ANSWER, OPENING, LATE = 15, 20, 60


def library() -> Any:
    """The module pika. Raises Unreachable."""
    try:
        import pika  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise needs("shovel", "pika", "pika", "python3-pika", "amqp") from None
    # Else it prints what we raise
    logging.getLogger("pika").addHandler(logging.NullHandler())
    return pika


class Client:
    """One connection with one channel to the queue at amqp[s]://[USER:PASSWORD@]HOST[:PORT]/[VHOST/]QUEUE[?PIKA'S-OPTIONS]. All methods raise
    Unreachable if the connection has ended (68 if the channel was not open yet, else 69); Missing, Denied, Busy or TooLarge if that is why the server
    ended it."""

    def __init__(self, url: str, tells: bool = True) -> None:
        #: Whether it tells the server that it ends the connection
        self.tells = tells
        parts = urllib.parse.urlsplit(url)
        host, (above, _, queue) = parts.netloc.rpartition("@")[2], parts.path.rpartition("/")
        self.place, self.queue = host + parts.path, urllib.parse.unquote(queue)
        self.name = f"{parts.scheme}://{self.place}"
        self.pika = library()
        try:
            self.parameters = self.pika.URLParameters(urllib.parse.urlunsplit(parts._replace(path=above)))
        except (ValueError, TypeError, OSError):
            queue = ""
        if not host or not queue or above.count("/") > 1:
            raise Invalid(f"'{self.name}': amqp://USER:PASSWORD@HOST:PORT/VHOST/QUEUE", 65)
        self.connection: Any = None
        self.channel: Any = None
        #: What has ended the connection or its channel
        self.failed: Any = None
        self.closing = False
        #: Why the server takes no message from us at present
        self.blocked = ""

    def connect(self) -> bool:
        """Connect if there is no connection, or no more. Return whether it is a new one."""
        if self.connection:
            with contextlib.suppress(Error):
                self.wait(0)
                return False
        self.failed, self.blocked = None, ""
        opened: list[Any] = []
        try:
            self.connection = self.pika.SelectConnection(self.parameters, self._stops(opened.append), self._ended, self._ended)
        except OSError as error:
            # No file for its loop
            self.failed = error
            raise self._error() from None
        try:
            self.connection.add_on_connection_blocked_callback(self._stops(self._blocks))
            self.connection.add_on_connection_unblocked_callback(self._stops(self._blocks))
            self._wait(OPENING, lambda: opened)
            self.channel = self.ask(lambda callback: self.connection.channel(on_open_callback=callback))
            self.channel.add_on_close_callback(self._ended)
            self.channel.add_on_cancel_callback(lambda frame: self._ended(self.channel, self.pika.exceptions.ConsumerCancelled("the queue is gone")))
        except BaseException:
            self.close()
            raise
        return True

    def about(self) -> Any:
        """Ask for message_count (ready messages) and consumer_count. The server answers in order: what was asked before is done by then."""
        return self.ask(self.channel.queue_declare, self.queue, passive=True).method

    def ask(self, method: Callable[..., Any], *words: Any, **more: Any) -> Any:
        """The server's answer to that method of pika's."""
        answers: list[Any] = []
        self.call(method, *words, callback=self._stops(answers.append), **more)
        self._wait(ANSWER, lambda: answers)
        return answers[0]

    def call(self, method: Callable[..., Any], *words: Any, **more: Any) -> None:
        """Call a method of pika's that waits for nothing."""
        try:
            method(*words, **more)
        except (self.pika.exceptions.AMQPError, OSError) as error:
            self.failed = self.failed or error
            raise self._error() from None

    def wait(self, seconds: float, done: Callable[[], object] = lambda: False) -> bool:
        """Serve the connection for `seconds`, or until done() is true; return whether it is. Raises the error that ended the connection."""
        end = time.monotonic() + seconds
        while not done() and not self.failed:
            loop = self.connection.ioloop
            timer = loop.call_later(max(end - time.monotonic(), 0), loop.stop)
            try:
                loop.start()
            except OSError as error:
                # pika raises here what its sockets and its poll raise, such as that there is no file for another socket
                self.failed = self.failed or error
            loop.remove_timeout(timer)
            if time.monotonic() >= end:
                break
        if not done() and self.failed:
            raise self._error()
        return bool(done())

    def close(self) -> None:
        """End the connection: the server takes back what we have not acknowledged."""
        if self.connection is None or self.closing:
            return
        try:
            # What fails meanwhile is not to begin this once more
            self.closing = True
            self._close(self.connection)
        finally:
            self.closing = False
        self.connection = None

    def _close(self, connection: Any) -> None:
        self.channel = None
        # A signal may have interrupted pika anywhere, so ignore what it raises
        with contextlib.suppress(Exception):
            if self.tells and connection.is_open:
                self.failed = None
                connection.close()
                self.wait(2)
        # End it at once, by the only name that pika has for that: while it is open, a server that does not answer keeps our message for it
        with contextlib.suppress(Exception):
            connection._transport.abort()
            self.failed = None
            self.wait(0)
        with contextlib.suppress(Exception):
            connection.ioloop.close()

    def _stops(self, what: Callable[[Any], object]) -> Callable[..., None]:
        """Return a callback that calls `what` with its last argument, and ends a `wait`."""
        def called(*words: Any) -> None:
            what(words[-1])
            self.connection.ioloop.stop()
        return called

    def _ended(self, which: Any, reason: BaseException) -> None:
        self.failed = self.failed or reason
        self.connection.ioloop.stop()

    def _blocks(self, frame: Any) -> None:
        self.blocked = printable(getattr(frame.method, "reason", "").encode())

    def _wait(self, seconds: float, done: Callable[[], object]) -> None:
        code = 69 if self.channel else 68
        if not self.wait(seconds, done):
            self.close()
            raise Unreachable(f"{self.place}: no answer", code)

    def _error(self) -> Error:
        """Close the connection, and return the error for what ended it."""
        reason, code = self.failed, 69 if self.channel else 68
        self.close()
        # pika's exceptions hold one another; some have the server's words as text only
        while inner := [one for one in (*getattr(reason, "exceptions", ()), getattr(reason, "exception", None), *reason.args) if isinstance(one, BaseException)]:
            reason = inner[-1]
        said = re.search(r"\(([0-9]{3})\) (['\"])(.*?)\2", repr(reason), re.S)
        text = f"{self.place}: " + printable((said[3] if said else getattr(reason, "strerror", None) or str(reason)).encode())
        kinds: list[tuple[str, str, Callable[[], Error]]] = [
            ("404", "no queue", lambda: Missing(text, 66)), ("530", "not found", lambda: Missing(text, 66)),
            ("403", "exclusive", lambda: Busy(text, 75)), ("403", "", lambda: Denied(text, 77)), ("405", "", lambda: Busy(text, 75)),
            ("530", "limit", lambda: Busy(text, 75)), ("530", "refused", lambda: Denied(text, 77)), ("406", "message size", lambda: TooLarge(text, 65)),
        ]
        for number, word, kind in kinds:
            if said and said[1] == number and word in text:
                return kind()
        return Unreachable(text, code)


class Amqp(Target):
    """A queue, to which messages go through the default exchange, as persistent ones with their keys as message_id."""

    def __init__(self, url: str) -> None:
        self.client = Client(url)
        self.name = self.client.name
        #: What we published last on this channel: its key, its number, when, whether it was taken or refused, and why it came back
        self.key, self.number, self.since = "", 0, 0.0
        self.taken: bool | None = None
        self.returned = ""

    def give(self, parcel: Parcel, wait: float) -> None:
        if self.client.connect():
            self.key, self.number = "", 0
            self.client.channel.add_on_return_callback(self._returns)
            self.client.ask(self.client.channel.confirm_delivery, self.client._stops(self._answers))
        # If it was published before and is not acknowledged yet, wait on: published again, it would be stored twice
        if self.key != parcel.key:
            self.key, self.number, self.since, self.taken, self.returned = parcel.key, self.number + 1, time.monotonic(), None, ""
            about = self.client.pika.BasicProperties(delivery_mode=2, message_id=parcel.key)
            self.client.call(self.client.channel.basic_publish, "", self.client.queue, parcel.body, about, mandatory=True)
        self.client.wait(wait + ANSWER, lambda: self.taken is not None or self.client.blocked)
        place, blocked = self.client.place, self.client.blocked
        if self.taken is None and blocked:
            raise Full(f"{place}: takes nothing at present: {blocked}", 75)
        if self.taken is None:
            # A quorum queue that lost its leader may have forgotten the message: close, so that the next try publishes it again
            if time.monotonic() - self.since > LATE:
                self.client.close()
            raise Unreachable(f"{place}: no acknowledgement yet", 69)
        self.key = ""
        if self.returned:
            raise Missing(f"{place}: no such queue: {self.returned}", 66)
        if not self.taken:
            raise Full(f"{place}: the queue is full", 75)

    def _returns(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.returned = printable(method.reply_text.encode())

    def _answers(self, frame: Any) -> None:
        method = frame.method
        if method.delivery_tag == self.number or method.multiple and method.delivery_tag > self.number:
            self.taken = method.NAME == "Basic.Ack"

    def close(self) -> None:
        self.client.close()


class _Delivered(Parcel):
    """A message that was delivered to us. If it is not acknowledged, it is back at its old place when the connection ends."""

    def __init__(self, client: Client, method: Any, properties: Any, body: bytes) -> None:
        # The key: server, queue and message_id. Without message_id, a message that comes again is not recognised
        super().__init__(body, key_of(client.name, properties.message_id or uuid.uuid4().hex, body=body))
        self.client, self.channel, self.tag = client, client.channel, method.delivery_tag

    def done(self) -> None:
        if self.client.channel is not self.channel:
            raise NotYours("the connection that held it has ended", 66)
        self.client.call(self.channel.basic_ack, self.tag)
        try:
            self.client.about()
        except Unreachable:
            # The message may come again
            raise NotYours("the connection ended before it was acknowledged", 66) from None

    def keep(self) -> None:
        if self.client.channel is self.channel:
            self.client.wait(0)


class AmqpSource(Connected):
    """We are a consumer that gets one message at a time. When a connection ends, the server may put its message back only after it has served the first
    commands of the next connection; later messages would overtake it. So after each connection, ours or another shovel's between these places, take
    nothing while the queue has a consumer, for LEASE seconds at most: after that it is another program."""

    def __init__(self, url: str, towards: str) -> None:
        # Do not tell the server that we end: a quorum queue would forget the consumer first, and put its message back only after it gave us later ones
        self.client = Client(url, tells=False)
        super().__init__(self.client.name, self.client.place, towards)
        self.consumes = False
        #: The message that has come, in the words of pika's callback
        self.came: list[tuple[Any, ...]] = []

    def take(self, wait: float) -> Parcel:
        self.open_note()
        if self.client.connect():
            self.came.clear()
            if self.consumes:
                self.doubt.arise()
            self.consumes = False
        if self.doubt:
            if self.client.about().consumer_count and self.doubt.age() < LEASE:
                self.doubt.wait()
            self.doubt.end()
        if not self.consumes:
            self.consumes = True
            self.client.ask(self.client.channel.basic_qos, prefetch_count=1)
            self.client.ask(self.client.channel.basic_consume, self.client.queue, self._comes)
        if not self.client.wait(wait, lambda: self.came) and (wait or self._empty()):
            raise Empty("nothing there", 66)
        return _Delivered(self.client, *self.came.pop()[1:])

    def _comes(self, *words: Any) -> None:
        self.came.append(words)
        self.client.connection.ioloop.stop()

    def _empty(self) -> bool:
        """Whether nothing is there; else, something has come. A message that the first count does not see any more may be on its way to our channel;
        then it comes before the second count."""
        end, counts = time.monotonic() + ANSWER, 0
        while counts < 2:
            counts = 0 if self.client.about().message_count else counts + 1
            if self.client.wait(0 if counts else 1, lambda: self.came):
                return False
            if time.monotonic() > end:
                raise Busy(f"{self.client.place}: it has messages but gives us none: another consumer is the active one", 75)
        return True

    def close(self) -> None:
        self.client.close()
        note, self.note = self.note, None
        if note:
            note.close()
