"""Conversations made up by chance, of commands that are mostly good: stalk.talk says what is in a
line."""

PRIORITIES = ("0", "1", "5", "1023", "1024", "4294967295")
DELAYS = ("0", "0", "0", "10000", "20000")
TUBES = ("default", "t", "u", "v")
BODIES = ("x", "hello", "", "{300*z}", "{1500*y}")
SIZES = dict(zip(BODIES, (1, 5, 0, 300, 1500)))
REFUSED = ("put 1 2 3", "release 1", "touch", "nonsense", "kick", "bury 1", "watch -x", "reserve x",
    "stats-job x")
# how often each command comes, and its words
COMMANDS = [
    (5, "put {priority} {delay} {ttr} {size}|{body}"), (1, "use {tube}"), (2, "watch {tube}"),
    (1, "ignore {tube}"),
    (3, "reserve-with-timeout 0"), (1, "reserve-job {job}"), (1, "delete {job}"),
    (2, "release {job} {priority} {delay}"), (2, "bury {job} {priority}"),
    (1, "touch {job}"), (2, "kick {few}"), (1, "kick-job {job}"), (1, "peek {job}"),
    (1, "peek-ready"), (1, "peek-delayed"), (1, "peek-buried"),
    (2, "stats-job {job}"), (1, "stats-tube {tube}"), (1, "stats"), (1, "list-tubes"),
    (1, "list-tube-used"), (1, "list-tubes-watched"),
    (1, "pause-tube {tube} {pause}"), (1, "list-tube-used\n{one} end"), (1, "{refused}"),
]


def script(chance, count):
    """So many lines of three connections; a fourth keeps the tubes, of which beanstalkd forgets the
    counters when nobody has them."""
    lines, jobs = [f"k: watch {tube}" for tube in TUBES], 0
    often, commands = zip(*COMMANDS)
    for _ in range(count):
        [words], one, body = chance.choices(commands,
            often), chance.choice("aaabbc"), chance.choice(BODIES)
        jobs += "{body}" in words
        lines.append(f"{one}: " + words.format(
            one=one, body=body, size=SIZES[body], job=f"#{chance.randint(1, jobs or 1)}",
            tube=chance.choice(TUBES), priority=chance.choice(PRIORITIES),
            delay=chance.choice(DELAYS), ttr=chance.choice((6000, 10000)), few=chance.randint(0, 3),
            pause=chance.choice((0, 0, 100)),
            refused=chance.choice(REFUSED)))
    return "\n".join(lines)
