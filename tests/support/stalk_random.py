"""Conversations made up by chance, of commands that are mostly good: stalk.talk says what is in a line."""

PRIORITIES = ("0", "1", "5", "1023", "1024", "4294967295")
DELAYS = ("0", "0", "0", "10000", "20000")
TUBES = ("default", "t", "u", "v")
BODIES = ("x", "hello", "", "{300*z}", "{1500*y}")
SIZES = dict(zip(BODIES, (1, 5, 0, 300, 1500)))
REFUSED = ("put 1 2 3", "release 1", "touch", "nonsense", "kick", "bury 1", "watch -x", "reserve x", "stats-job x")
# as often as it stands here
COMMANDS = """put put put put put use watch watch ignore reserve-with-timeout reserve-with-timeout reserve-with-timeout reserve-job delete release
    release bury bury touch kick kick kick-job peek peek-ready peek-delayed peek-buried stats-job stats-job stats-tube stats list-tubes list-tube-used
    list-tubes-watched pause-tube end refused""".split()


def script(chance, count):
    """So many lines of three connections; a fourth keeps the tubes, of which beanstalkd forgets the counters when nobody has them."""
    lines, jobs = [f"k: watch {tube}" for tube in TUBES], 0
    for _ in range(count):
        command, one = chance.choice(COMMANDS), chance.choice("aaabbc")
        job, tube, priority, delay = f"#{chance.randint(1, jobs or 1)}", chance.choice(TUBES), chance.choice(PRIORITIES), chance.choice(DELAYS)
        words = command
        if command == "put":
            body = chance.choice(BODIES)
            words, jobs = f"put {priority} {delay} {chance.choice((6000, 10000))} {SIZES[body]}|{body}", jobs + 1
        elif command in ("use", "watch", "ignore", "stats-tube"):
            words = f"{command} {tube}"
        elif command in ("reserve-job", "delete", "touch", "kick-job", "peek", "stats-job"):
            words = f"{command} {job}"
        elif command == "reserve-with-timeout":
            words = f"{command} 0"
        elif command == "release":
            words = f"release {job} {priority} {delay}"
        elif command == "bury":
            words = f"bury {job} {priority}"
        elif command == "kick":
            words = f"kick {chance.randint(0, 3)}"
        elif command == "pause-tube":
            words = f"pause-tube {tube} {chance.choice((0, 0, 100))}"
        elif command == "refused":
            words = chance.choice(REFUSED)
        elif command == "end":
            lines.append(f"{one}: list-tube-used")
            lines.append(f"{one} end")
            continue
        lines.append(f"{one}: {words}")
    return "\n".join(lines)
