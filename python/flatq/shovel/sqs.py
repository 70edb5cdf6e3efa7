"""A queue of Amazon's SQS, or of a server with its protocol, as an end of a shovel, by boto3."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable
from typing import Any

from ..command import module
from ..errors import Busy, Denied, Empty, Error, Invalid, Missing, NotYours, Unreachable
from ..errors import printable
from .ends import LEASE, Parcel, Source, Target, TooLarge, key_of

#: The attribute that marks base64, and the text that goes as it is. SQS also takes carriage
#: returns, which not every client keeps
MARK, VALUE = "flatq-encoding", "base64"
TEXT = re.compile("[\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")


def encode(body: bytes) -> tuple[str, bool]:
    """Return the text for a body, and whether it is base64."""
    with contextlib.suppress(UnicodeDecodeError):
        if TEXT.fullmatch(text := body.decode()):
            return text, False
    return base64.b64encode(body).decode() or "\n", True


def decode(message: dict[str, Any]) -> bytes:
    """Return the body of a message that boto3 received."""
    text: str = message["Body"]
    # Another program may have marked what is no base64
    with contextlib.suppress(ValueError):
        if message.get("MessageAttributes", {}).get(MARK, {}).get("StringValue") == VALUE:
            return base64.b64decode(text.strip(), validate=True)
    return text.encode()


#: What the code and the status, or the text, of an error of Amazon's means
SAID = (
    (r"\S*(NonExistentQueue|QueueDoesNotExist)", Missing),
    (r"\S*(Throttl|OverLimit|TooManyRequests)", Busy),
    (r"\S*(ReceiptHandleIsInvalid|MessageNotInflight)|.*receipt handle has expired", NotYours),
    (r".*shorter than", TooLarge),
    (r"\S* 5", Unreachable),
    (r"\S* 40[13] |\S*(Denied|Token|Signature|AccessKey)", Denied),
    (r"", Invalid),
)


class Sqs(Source, Target):
    """The queue at sqs://QUEUE. A message in hand is invisible to others for LEASE seconds.

    In a FIFO queue, all messages are one group.
    """

    def __init__(self, url: str) -> None:
        self.name, self.queue = url, url.partition("://")[2]
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo", self.queue):
            raise Invalid(f"'{url}': sqs://QUEUE")
        self.boto3 = module("boto3", "boto3", "python3-boto3", "sqs")
        from botocore import config, exceptions, parsers

        self.errors = exceptions
        #: An answer was cut off
        self.cut = exceptions.HTTPClientError, parsers.ResponseParserError
        self.config = config.Config(connect_timeout=5, read_timeout=30,
                                    retries={"total_max_attempts": 1})
        self.client: Any = None
        self.url = ""

    def ask(self, method: str, **words: Any) -> dict[str, Any]:
        """Return the answer to a request about the queue."""
        if not self.url:
            self.url = self._called("get_queue_url", QueueName=self.queue)["QueueUrl"]
        return self._called(method, QueueUrl=self.url, **words)

    def _called(self, method: str, **words: Any) -> dict[str, Any]:
        try:
            if self.client is None:
                self.client = self.boto3.client("sqs", config=self.config)
                self.client.meta.events.register("response-received.sqs", self._came)
            answer: dict[str, Any] = getattr(self.client, method)(**words)
            return answer
        except (self.errors.BotoCoreError, self.errors.ClientError, ValueError, *self.cut) as error:
            raise self._error(error) from None
        except Unreachable:
            raise
        except OSError as error:
            raise Unreachable(f"{self.name}: {error.strerror or error}") from None

    def _came(self, response_dict: Any, **more: Any) -> None:
        # botocore takes an answer that was cut off for an empty one, which means an empty queue
        if response_dict:
            head, length = response_dict["headers"], str(len(response_dict["body"]))
            if "transfer-encoding" not in head and head.get("content-length") != length:
                raise Unreachable(f"{self.name}: no whole answer")

    def _error(self, error: Any) -> Error:
        errors = self.errors
        if isinstance(error, errors.ClientError):
            about = error.response["Error"]
            code, said = about.get("Code", ""), about.get("Message", "")
            status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
            text = f"{self.name}: {code}: " + printable(said.encode())
            return next(kind(text) for pattern, kind in SAID
                        if re.match(pattern, f"{code} {status} {said}", re.S))
        text = f"{self.name}: " + printable(str(error).encode())
        if isinstance(error, (errors.NoCredentialsError, errors.PartialCredentialsError,
                              errors.CredentialRetrievalError)):
            return Denied(text)
        if isinstance(error, errors.ConnectionError):
            return Unreachable(text, 68)
        if isinstance(error, self.cut):
            return Unreachable(text)
        return Invalid(text)

    def give(self, parcel: Parcel, wait: float) -> None:
        text, marked = encode(parcel.body)
        words: dict[str, Any] = {"MessageBody": text}
        if marked:
            words["MessageAttributes"] = {MARK: {"DataType": "String", "StringValue": VALUE}}
        if self.name.endswith(".fifo"):
            words.update(MessageGroupId="flatq", MessageDeduplicationId=parcel.key)
        self.ask("send_message", **words)

    def take(self, wait: float) -> Parcel:
        # With less than a second, SQS asks only some of its servers
        answer = self.ask("receive_message", WaitTimeSeconds=max(1, int(wait)),
                          VisibilityTimeout=LEASE, MaxNumberOfMessages=1,
                          MessageAttributeNames=[MARK])
        if not answer.get("Messages"):
            raise Empty("nothing there")
        message = answer["Messages"][0]
        receipt = message["ReceiptHandle"]

        def visible(seconds: int) -> Callable[[], object]:
            return lambda: self.ask("change_message_visibility", ReceiptHandle=receipt,
                                    VisibilityTimeout=seconds)

        key = key_of(self.url, message["MessageId"], body=message["Body"].encode())
        return Parcel(decode(message), key, keep=visible(LEASE), back=visible(0),
                      done=lambda: self.ask("delete_message", ReceiptHandle=receipt))
