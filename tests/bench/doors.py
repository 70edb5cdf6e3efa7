"""Rows of connections: doors, http, beanstalk."""

import http.client
import os
import socket
import time

from harness import FLOOR, processes
NOTHING = f"ncat -l -k -c true {FLOOR}"


def ask(port, said):
    """Open a connection, send this, and return the whole answer."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        try:
            client.sendall(said)
            while client.recv(65536):
                pass
        except ConnectionResetError:  # a door that does nothing with its input may end like this
            pass


def doors(run):
    """Seconds a connection of the line door, one after the other, beside an ncat that starts a
    shell for each, which does nothing."""
    run.fill("doors", 10)
    ports = {**run.doors(["line", "-k"], "doors"),
        NOTHING: run.serve(["ncat", "-l", "-k", "-c", "true", "127.0.0.1", None])}
    seconds = {name: [] for name in ports}
    for _ in range(8 if run.quick else 200):
        for name, port in ports.items():
            began = time.perf_counter()
            ask(port, b"list\n")
            seconds[name].append(time.perf_counter() - began)
    run.compare("connection, line door, list", seconds, {NOTHING: 2.5})


def http_(run):
    """A put, a take and a delete over one lasting connection, beside the same through flatq's
    beanstalk door."""
    for durable in (True, False):
        place = f"http.{durable}", "on" if durable else "off"
        webs = {name: http.client.HTTPConnection("127.0.0.1", port, timeout=60) for name,
            port in run.doors(["http"], *place).items()}
        stalk = socket.create_connection(("127.0.0.1", run.door(["beanstalk"], *place)))
        talks = {name: lambda web=web: web_job(web) for name, web in webs.items()}
        talks["our beanstalk door"] = lambda: stalk_job(stalk)
        in_turn(run, "HTTP POST, GET, DELETE", durable, talks,
            {"our beanstalk door": (1.5, 1.2, 1.2)})
        for client in (*webs.values(), stalk):
            client.close()


def beanstalk(run):
    """One client puts, reserves and deletes over one connection; with both servers syncing, and
    with neither."""
    for durable in (True, False):
        ports = {
            **run.doors(["beanstalk"], f"stalk.{durable}", "on" if durable else "off"),
            f"its programs alone {FLOOR}": programs(run, durable),
        }
        if run.there("beanstalkd"):
            store = run.work / f"binlog.{durable}"
            store.mkdir()
            theirs = ["beanstalkd", "-l", "127.0.0.1", "-p", None,
                *(["-b", store, "-f0"] if durable else [])]
            ports["beanstalkd -b -f0" if durable else "beanstalkd, memory only"] = run.serve(theirs)
        clients = {name: socket.create_connection(("127.0.0.1", port)) for name,
            port in ports.items()}
        talks = {name: lambda client=client: stalk_job(client) for name, client in clients.items()}
        in_turn(run, "put, reserve, delete", durable, talks,
            {f"its programs alone {FLOOR}": (1.3, 1.3, 1.3)},
                {"beanstalkd -b -f0": 15, "beanstalkd, memory only": 50})
        for client in clients.values():
            client.close()


# What one connection of the beanstalk door starts for each command, and nothing else. The sync of a
# put is that of a body and two directories, that of a delete of two directories. `sh -e` runs it:
# if a program fails, the connection ends, and so the row. A body has 136 characters in base64
PROGRAMS = r"""mkdir -p "$1/out" && cd "$1" && >slip || exit
while IFS= read -r line; do
  case $line in
  put*)
    dd bs=100 count=1 iflag=fullblock 2>/dev/null | base64 -w0 >body
    [ "$2" = off ] || sync body . out
    read -r line
    printf 'INSERTED 1\r\n' ;;
  reserve*)
    mv -f slip out/slip
    read -r body <body || [ ${#body} = 136 ]
    base64 -d <<EOF
UkVTRVJWRUQgMSAxMDANCg==
$body
DQo=
EOF
    ;;
  delete*)
    mv -f out/slip slip
    [ "$2" = off ] || sync . out
    printf 'DELETED\r\n' ;;
  esac
done
"""


def programs(run, durable):
    """The port of a server that does this."""
    place = run.work / f"programs.{durable}"
    place.mkdir()
    script = run.file("programs", PROGRAMS.encode())
    return run.serve(["ncat", "-l", "-k", "-c",
        f"exec sh -e {script} {place}/$$ {'on' if durable else 'off'}", "127.0.0.1", None])


def in_turn(run, row, durable, talks, bounds, sums=None):
    """Each talk runs once a round. It ends a step at a time, and each step is a row; so is their
    sum. `bounds`: contender: one for each step; `sums`: contender: one for the sum."""
    many = 3 if run.quick else 200
    suffix = "synced" if durable else "unsynced"
    seconds = {name: [] for name in talks}
    for _ in range(many):
        for name, talk in talks.items():
            times = [time.perf_counter()]
            for _step in talk():
                times.append(time.perf_counter())
            seconds[name].append([end - begin for begin, end in zip(times, times[1:])])
    run.compare(f"{row}, {suffix}", {name: [sum(steps) for steps in rounds] for name,
        rounds in seconds.items()}, sums or {})
    for at, step in enumerate(row.split(", ")):
        run.compare(f"{step}, {suffix}", {name: [steps[at] for steps in rounds] for name,
            rounds in seconds.items()},
                    {name: bound[at] for name, bound in bounds.items()})


def web_job(web):
    receipt = ""
    for method, target, body in (("POST", "/queue?group-id=jobs", b"x" * 100),
            ("GET", "/queue?group-id=jobs", None), ("DELETE", None, None)):
        web.request(method, target or f"/queue?receipt-id={receipt}", body)
        answer = web.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"HTTP: {method} was answered {answer.status}")
        receipt = answer.headers["Message-Receipt-Id"]
        yield method


def stalk_job(client):
    number = talk(client, b"put 0 0 60 100\r\n" + b"x" * 100 + b"\r\n", b"\r\n").split()[1]
    yield "put"
    talk(client, b"reserve\r\n", b"x\r\n")
    yield "reserve"
    talk(client, b"delete " + number + b"\r\n", b"DELETED\r\n")
    yield "delete"


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


def launch(run):
    """From the start of a door to its first answer."""
    starts = {name: ["sh", root / "launch", "beanstalk", "-p", None] for name,
        root in run.trees.items()}
    starts[f"ncat -l -k -c 'echo OK' {FLOOR}"] = ["ncat", "-l", "-k", "-c", "echo OK", "127.0.0.1",
        None]
    seconds = {name: [] for name in starts}
    for _ in range(2 if run.quick else 20):
        for name, argv in starts.items():
            began = time.perf_counter()
            port = run.serve(argv, {"FLATQ_DIR": str(run.work / "launch")})
            ask(port, b"quit\r\n")
            seconds[name].append(time.perf_counter() - began)
            run.end()
    run.compare("a door, until it has answered", {**seconds, "60 ms": [0.06] * 3}, {"60 ms": 1.0})


def idle(run):
    """How much of a processor a door takes for connections that say nothing: of each tree, one
    behind the other."""
    many, watched = (20, 2) if run.quick else (400, 20)
    shares = {}
    for name in run.trees:
        port = run.door(["beanstalk", "-m", str(many + 1)], "idle", name=name)
        clients = []
        for _ in range(many):
            client = socket.create_connection(("127.0.0.1", port))
            talk(client, b"list-tube-used\r\n", b"\r\n")
            clients.append(client)
        before = processor(run.servers[-1].pid)
        time.sleep(watched)
        shares[name] = [(processor(run.servers[-1].pid) - before) / watched]
        for client in clients:
            client.close()
        run.end()
    run.compare(f"{many} idle connections, processor seconds in a second",
        {**shares, "one processor": [1.0]}, {"one processor": 0.02})


def processor(root):
    """Processor seconds of a process and of all below it, with those of children that have
    ended."""
    rows = {int(place.name): (int(fields[1]), sum(map(int, fields[11:15])))
        for place, _, fields in processes()}
    below, found = {root}, 0
    while found != len(below):
        found = len(below)
        below |= {pid for pid, (parent, _) in rows.items() if parent in below}
    return sum(rows[pid][1] for pid in below if pid in rows) / os.sysconf("SC_CLK_TCK")
