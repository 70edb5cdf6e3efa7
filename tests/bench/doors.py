"""Rows of connections: doors, http, beanstalk."""

import http.client
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from harness import FLOOR

SIDE_BY_SIDE = 4


def ask(port, said):
    """Open a connection, send this, and return the whole answer."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        try:
            client.sendall(said)
            while client.recv(65536):
                pass
        except ConnectionResetError:  # a door that does nothing with its input may end like this
            pass


def connections(run, row, contenders, many):
    """Seconds a connection: one connection after the other, and some at a time. Contenders: name: (port, what is sent)."""
    for text, clients in (("", 1), (f", {SIDE_BY_SIDE} at a time", SIDE_BY_SIDE)):
        seconds = {name: [] for name in contenders}
        run.progress.row = row + text
        with ThreadPoolExecutor(clients) as pool:
            turns = many // clients or 1
            for turn in range(turns):
                for name, (port, said) in contenders.items():
                    began = time.perf_counter()
                    list(pool.map(lambda _: ask(port, said), range(clients)))
                    seconds[name].append((time.perf_counter() - began) / clients)
                run.progress(f"{turn + 1} of {turns}")
        run.progress.end()
        run.compare(f"connection, {row}{text}", seconds)
        rates = (f"{name} {1 / sorted(values)[len(values) // 2]:,.0f}" for name, values in seconds.items())
        run.notes.append(f"Connections a second, {row}{text}: " + ", ".join(rates))


def nothing(run):
    """The floor: an ncat that starts a shell for each connection, which does nothing."""
    return {f"ncat -l -k -c true {FLOOR}": (run.serve(["ncat", "-l", "-k", "-c", "true", "127.0.0.1", None]), b"list\n")}


def doors(run):
    run.fill("doors", 10)
    ours = {"flatq": (run.door(["line", "-k"], "doors"), b"list\n")}
    connections(run, "line door, list", {**ours, **nothing(run)}, 8 if run.quick else 200)


def http_(run):
    """Connections; then a put, a take and a delete over one lasting connection, beside the same through flatq's beanstalk door."""
    run.fill("http", 10)
    port = run.door(["http"], "http")
    request = b"GET /queue/stats HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n"
    connections(run, "HTTP, stats", {"flatq": (port, request), **nothing(run)}, 8 if run.quick else 100)
    for durable in (True, False):
        place = f"http.{durable}", "on" if durable else "off"
        web = http.client.HTTPConnection("127.0.0.1", run.door(["http"], *place), timeout=60)
        stalk = socket.create_connection(("127.0.0.1", run.door(["beanstalk"], *place)))
        talks = {"flatq": lambda: web_job(web), "our beanstalk door": lambda: stalk_job(stalk)}
        in_turn(run, f"HTTP put, take, delete, {'synced' if durable else 'unsynced'}", talks)
        web.close()
        stalk.close()


def beanstalk(run):
    """One client puts, reserves and deletes over one connection; with both servers syncing, and with neither."""
    if not run.there("beanstalkd"):
        return
    for durable in (True, False):
        store = run.work / f"binlog.{durable}"
        store.mkdir()
        theirs = ["beanstalkd", "-l", "127.0.0.1", "-p", None, *(["-b", store, "-f0"] if durable else [])]
        ports = {
            "flatq": run.door(["beanstalk"], f"stalk.{durable}", "on" if durable else "off"),
            "beanstalkd -b -f0" if durable else "beanstalkd": run.serve(theirs),
        }
        clients = {name: socket.create_connection(("127.0.0.1", port)) for name, port in ports.items()}
        in_turn(run, f"put, reserve, delete, {'synced' if durable else 'unsynced'}",
                {name: lambda client=client: stalk_job(client) for name, client in clients.items()})
        for client in clients.values():
            client.close()


def in_turn(run, row, talks):
    """Each talk runs once a round."""
    many = 3 if run.quick else 200
    seconds = {name: [] for name in talks}
    run.progress.row = row
    for turn in range(many):
        for name, talk in talks.items():
            began = time.perf_counter()
            talk()
            seconds[name].append(time.perf_counter() - began)
        run.progress(f"{turn + 1} of {many}")
    run.progress.end()
    run.compare(row, seconds)


def web_job(web):
    for method, target, body in (("POST", "/queue?group-id=jobs", b"x" * 100), ("GET", "/queue?group-id=jobs", None), ("DELETE", None, None)):
        web.request(method, target or f"/queue?receipt-id={receipt}", body)
        answer = web.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"HTTP: {method} was answered {answer.status}")
        receipt = answer.headers["Message-Receipt-Id"]


def stalk_job(client):
    number = talk(client, b"put 0 0 60 100\r\n" + b"x" * 100 + b"\r\n", b"\r\n").split()[1]
    talk(client, b"reserve\r\n", b"x\r\n")
    talk(client, b"delete " + number + b"\r\n", b"DELETED\r\n")


def talk(client, said, end):
    """The server's answer, up to and with `end`."""
    client.sendall(said)
    heard = b""
    while not heard.endswith(end):
        more = client.recv(65536)
        if not more:
            raise RuntimeError(f"the connection ended after {heard[-99:]!r}")
        heard += more
    return heard
