"""Broken variants of the verbs (mutants): what is changed in a copy of lib/, and which families
must detect it.

An edit replaces a text that is there exactly once, in whichever file and however it is laid out,
or, after `FUNCTION(): `, once in that function. A word `...` stands for any text up to the next
word. A short text in a function outlives most changes. Where it is not there, the verbs have
changed, and the mutant is to be changed with them: that is an error, never a pass. A probe is the
smallest part of a family that sees the mutant for sure. """
from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..scenarios import ROOT, System

FAMILIES = ("crash", "double", "power", "history", "races", "clients", "reads", "ends", "pairs",
    "model")


@dataclass(frozen=True)
class Probe:
    """Where to look. crash: `where` is a scenario, `what` a fault; "undisturbed": it goes wrong by
    itself. double: a scenario and the second verb. power: a scenario and a stage. history: a kind.
    races, clients: a name. model: a variant of tests/model. reads, ends: a scenario and a fault.
    pairs: BASE/FIRST/SECOND. Of these three, `at` is found in "COMMAND: KIND PATH ..." of the calls
    that are struck, or held. `limit`: of trials, histories, states."""

    family: str
    where: str
    what: str = ""
    limit: int = 0
    at: str = ""


@dataclass(frozen=True)
class Mutant:
    """`must`: the family that has to detect it, and where; `also`: others that detect it; `make
    test-all` runs a third of these."""

    edits: tuple[tuple[str, str], ...]  # a text that is there exactly once, and its replacement
    must: Probe
    also: tuple[Probe, ...] = ()

    @property
    def probes(self) -> tuple[Probe, ...]:
        return self.must, *self.also


def crash(where: str, what: str = "kill") -> Probe:
    return Probe("crash", where, what)


def power(where: str, what: str = "act", limit: int = 40) -> Probe:
    return Probe("power", where, what, limit)


def history(where: str, limit: int = 40) -> Probe:
    # A history catches a broken verb by chance: measured, 3 to 8 of 12 do, the same ones more often
    # than others
    return Probe("history", where, "", limit)


def model(where: str) -> Probe:
    return Probe("model", where)


def race(where: str) -> Probe:
    return Probe("races", where)


def reads(where: str, at: str, what: str = "read EIO", limit: int = 6) -> Probe:
    return Probe("reads", where, what, limit, at)


def ends(where: str, at: str, what: str = "killed at its end", limit: int = 6) -> Probe:
    return Probe("ends", where, what, limit, at)


def pair(where: str, at: str, limit: int = 3) -> Probe:
    return Probe("pairs", where, "", limit, at)


_SYNCED = 'push_sync(): "$q/body/$slip_id" "$q/body" "$push_place"'
_SWEEP = '{ [ -z "$sweep_out$sweep_keys" ]'
_SCAN_WAL = 'scan_least wal "$q"/wal/* scan_least fold "$q"/fold/*'
_SCAN_HEAD = 'scan_least "head/${scan_path##*/}" "$scan_path"/* done'

MUTANTS: dict[str, Mutant] = {
    # push
    "push does not sync the body": Mutant(
        ((_SYNCED, '"$q/body" "$push_place"'),),
        power("push"), (model("body is not synced"),)),
    "push does not sync body/": Mutant(
        ((_SYNCED, '"$q/body/$slip_id" "$push_place"'),),
        power("push"), (model("body's directory is not synced"),)),
    "push does not sync wal/": Mutant(
        ((_SYNCED, '"$q/body/$slip_id" "$q/body"'),),
        power("push"), (model("wal is not synced"),)),
    "push answers before its slip is made": Mutant(
        (("push_message(): ids_next || return $?",
        "ids_next || return $?\n  printf '%s\\n' \"$id\""),
         ("main(): printf '%s\\n' \"$id${push_dup:+ dup}\"", "")),
        crash("push"), (model("ack before slip"),)),
    "push ignores that base64 failed": Mutant(
        (("push_body(): || { set +C; ... }", "|| :"),),
        crash("push", "ENOSPC")),
    "push into a closed queue is not withdrawn": Mutant(
        (('push_closed(): *"$q/closed "*) push_withdraw', '*"$q/closed "*) false'),),
        race("closed while a body is read")),
    "a key is entered after the slip": Mutant(
        (("push_enter(): key_enter", ":"), ("push_slip(): key_confirm",
        "key_enter && key_confirm")),
        crash("push -k"), (model("key after slip"),)),
    "a key that a power cut has lost is not made again": Mutant(
        (("check_keys_compare(): for (key in first)", "for (key in none)"),),
        power("push -k")),
    "a whole body is taken for a damaged one": Mutant(
        (("check_slips(): if (name[id] !~ /^done/ && (bytes[id]",
        "if (name[id] !~ /^done/ && (1 || bytes[id]"),
         ('check_damaged(): there "$q/body/$slip_id"', 'return 0\n  there "$q/body/$slip_id"')),
        power("push")),
    "a key is not looked for": Mutant(
        (("push_wait_room(): key_find_dup || return $?", ":"),),
        crash("push -k again", "undisturbed"), (history("kills"),)),
    "a bound without the lock": Mutant(
        (("push_wait_room(): lock_queue || return $?",
        '[ -n "$push_key" ] && { lock_queue || return $?; }'),),
        history("bound"), (model("no lock"),)),
    # take
    "pop copies the slip": Mutant(
        (("take_slip(): mv -f", "cp"),),
        crash("pop", "undisturbed"), (history("kills"),)),
    "the places are listed in another order": Mutant(
        ((f"queue_scan(): {_SCAN_WAL}", ""), (f"queue_scan(): {_SCAN_HEAD}",
        _SCAN_HEAD.replace(" done", "\ndone\n") + _SCAN_WAL.replace(" scan", "\nscan"))),
        model("wal last")),
    "handing out is no try": Mutant(
        (("taken_format(): slip_tries=$((slip_tries + 1))", ""),),
        crash("release, too many tries", "undisturbed")),
    "pop ignores that base64 failed": Mutant(
        (("body_print(): 9>&-; fi && return 0", "9>&-; fi; return 0"),),
        crash("pop", "kill one")),
    # settle, put back
    "pop settles before it delivers": Mutant(
        (("main(): body_print && door_delivered || {",
        "taken_settle && body_print && door_delivered || {"),),
        crash("pop"), (Probe("double", "reserve", "pop"), history("kills"))),
    "delete ignores that its rename failed": Mutant(
        (('message_delete(): slip_move "$q/done/$slip" || return $?', 'slip_move "$q/done/$slip"'),
        ),
        crash("delete", "EIO")),
    "delete does not sync": Mutant(
        (('message_delete(): "$delete_syncs" "${slip_path%/*}" "$q/done" ||', ": ||"),),
        power("delete"), (model("delete is not synced"),)),
    "a receipt is not compared": Mutant(
        (('receipt_find(): [ "$slip_tries.$slip_nonce" = "$receipt_tries.$receipt_nonce" ]',
        "true"),),
        race("a receipt that is old"), (history("leases"), model("stale receipt"))),
    "a lease ends at once": Mutant(
        (('queue_reclaim(): lease_over "$slip_deadline"; then',
        '[ "$slip_deadline" != 000000000000 ]; then'),),
        history("leases")),
    "put back without a second look for the marker": Mutant(
        (("queue_reclaim(): ! reclaim_settled || continue", ""),),
        race("settled while its owner is looked for"), (model("no second look"),)),
    "a signal puts back without a look for the marker": Mutant(
        (('take_back(): && [ ! -e "$q/done/$taken" ]', ""),
        ('take_stopped(): [ -z "$taken" ] || [ ! -e "$q/done/$taken" ] || { ... }', "")),
        race("a signal behind the marker"), (model("take back looks for no marker"),)),
    "what a dead bulk taker had is put back without a try more": Mutant(
        (("batch_putback_locked(): slip_tries=$((slip_tries + 1))", ""),),
        race("too many tries of bulk takers")),
    "every owner is taken for dead": Mutant(
        (('owner_dead(): [ "$started" \\> "${1#*-}" ]', "true"),),
        history("kills")),
    "a dead owner is taken for alive": Mutant(
        (('owner_dead(): [ -n "$started_over" ] || { ... }', "false"),),
        crash("pop"), (history("kills"),)),
    # sweep, fold, unfold
    "the sweep removes bodies first": Mutant(
        ((f"sweep_these(): {_SWEEP}",
        '{ [ -z "$sweep_bodies" ] || (cd "$q/body" && exec rm -f $sweep_bodies 9<&9); } &&\n      '
        + _SWEEP),),
        model("sweep removes the body first")),
    "the sweep removes the marker first": Mutant(
        ((f"sweep_these(): {_SWEEP}", '(cd "$q/done" && exec rm -f $sweep_names 9<&9) &&\n      '
        + _SWEEP),),
        crash("checkpoint sweeps"), (model("sweep removes the marker first"),)),
    "a fold without the lock": Mutant(
        (("checkpoint(): under_lock checkpoint_locked ||",
        "{ need engine/proof; queue_recover; } && checkpoint_locked ||"),),
        history("kills")),
    "a killed fold is not recovered": Mutant(
        (("queue_recover(): || { fold_finish ... }", "|| continue"),),
        crash("checkpoint folds"), (model("no recovery"),)),
    "a fold removes bodies before its commit": Mutant(
        (("fold_write(): rename_path", 'unfold_undo "$fold_run" && rename_path'),),
        crash("checkpoint after a fold killed before its file"),
        (model("fold removes bodies first"),)),
    "a fold does not sync its file": Mutant(
        (('fold_write(): sync_paths "$q/tmp/$fold_flat"', "sync_paths"),),
        power("checkpoint folds"), (model("flat file is not synced"),)),
    "an unfold removes the flat file first": Mutant(
        (('unfold_finish(): [ -d "$q/head/$run" ] ||',
        'rm -f "$q/unfold/$1" 9<&9\n  [ -d "$q/head/$run" ] ||'),),
        crash("checkpoint after an unfold killed after the commit"),
        (model("unfold removes first"),)),
    # the push journal, claims
    "the journal's sweep takes the living for dead": Mutant(
        (("journal_sweep(): journal_dead || { ... }", ":"),
         ("push_unmade(): && journal_dead", "")),
        race("swept while a body is read")),
    "a push does not note that its slip comes": Mutant(
        (("push_slip(): && printf 'slip\\n' >>\"$journal\"", "&& printf '' >>\"$journal\""),),
        crash("checkpoint after a push killed with its slip", "kill")),
    "settle removes segments before it renames settled.OFFSET": Mutant(
        (("claim_settle(): rename_path",
          "claim_old=$claim_settled claim_settled=$claim_at\n  claim_recover || return $?\n  "
          "claim_settled=$claim_old\n  rename_path"),),
        race("segments that are settled together"), (model("settle sweeps first"),)),
    "settle does not sync": Mutant(
        (('claim_settle(): sync_paths "$claim" || return $?', ":"),),
        power("settle"), (model("settle is not synced"),)),
    "unclaim does not sync that segments are batches": Mutant(
        (('claim_back(): sync_paths "$claim" "$q/out"', ":"),),
        power("unclaim")),
    "what a killed fold has renamed is not synced": Mutant(
        (('fold_finish(): sync_paths "${fold_at%/*}" "$q/queue"', ":"),),
        power("checkpoint folds", "kill before sync s/q/queue/", 20)),
    "what a killed claim has renamed is not synced": Mutant(
        (('claim_recover(): sync_paths "$claim" || return $? segment_sweep', "segment_sweep"),),
        power("claim", "kill before sync s/q/claimed/me$", 100)),
    "what a killed settle has renamed is not synced": Mutant(
        (('claim_recover(): [ -z "$claim_over$claim_marks" ] || sync_paths "$claim"', ":"),),
        power("settle", "kill before sync s/q/claimed/me$", 100)),
    # failed reads
    "an empty listing of a run is believed": Mutant(
        (('fold_finish(): names_in "$1" || return $? ... rmdir "$1"',
        'names_in "$1" || :\n    [ -n "$names" ] || { rm -rf "$1"'),),
        reads("checkpoint folds", "ls: .* q/fold/")),
    "an ls that failed is believed": Mutant(
        (('names_in(): ls -q "$1" && printf', 'ls -q "$1"; printf'),),
        reads("drain", "ls: .* q/out/batch")),
    "a claim finds nothing where it could not look": Mutant(
        (("bulk_choose(): nothing_ready || return $?", "return 66"),),
        reads("claim", ": list q/wal$")),
    "a conf that cannot be read says nothing": Mutant(
        (("queue_conf(): need engine/proof; conf_read || return $?",
        "queue_bound=0 queue_most_tries=0"),),
        reads("release, too many tries", ": look q/conf")),
    "a body's end that was read in part is believed": Mutant(
        (('body_size(): read -r body_end <"$1" && [ ${#body_end} -eq "$size" ]',
        'read -r body_end <"$1" || :'),),
        reads("push", ": look q/body/")),
    "a key that cannot be read is nobody's": Mutant(
        (('key_look(): || { [ -e "$q/keys/$1" ] ... key_id=; }', "|| return 66"),
        ("key_look(): twice key_lines", "key_lines")),
        reads("push -k again", ": look q/keys/")),
    "a settled batch that cannot be listed is gone": Mutant(
        (('batch_sweep(): { names_in "$q/out" ... }', "return 0"),),
        reads("drain", "ls: .* q/out/batch")),
    "a flat file that find did not come to is not there": Mutant(
        (("find_names(): && case $names in lock | *'\nlock')", "; case $names in\n    *)"),),
        reads("checkpoint after a fold killed among the bodies", "find: list q/queue")),
    "the sweep leaves a key that it cannot read": Mutant(
        (("sweep_key(): *) return 74 ;;", "*) ;;"), ("key_look(): twice key_lines", "key_lines")),
        reads("checkpoint sweeps keys", ": look q/keys/")),
    "a fold writes what it has of a body": Mutant(
        (("flat_write(): if ((getline line <body) <= 0 ... { ... }", "getline line <body"),),
        reads("checkpoint folds", "awk: .* q/body/")),
    "a batch has no keys where keys/ was not listed": Mutant(
        (('batch_read(): if [ ! -e "$batch_path" ]; then ... fi',
        '[ -e "$batch_path" ] || return 0'),),
        reads("settle keys", "sh: list q/keys$")),
    "a claim that cannot be listed is none": Mutant(
        (('claim_open(): names_in "$q/claimed" && ! named "$1" || { ... }', ":"),),
        reads("settle", "ls: list q/claimed/me$")),
    # how processes end
    "a rename that reports an error is taken for none": Mutant(
        (('rename_path(): [ ! -e "$1" ] || return 1', "return 1"),),
        ends("checkpoint folds", "mv: exit")),
    "a take's rename that reports an error is taken for none": Mutant(
        (('take_slip(): || [ -e "$q/out/$taken" ]', ""),),
        ends("pop", "mv: exit")),
    "a fold's rename that reports an error is taken for none": Mutant(
        (("fold_write(): rename_path", "mv -f"),),
        ends("checkpoint folds", "mv: exit")),
    "the left side of a pipe need not have finished": Mutant(
        (('bulk_print(): [ "$bulk_said" = good ] &&', ""),),
        ends("drain", "exec .*awk", "killed at its start")),
    # two verbs side by side
    "delete is a marker": Mutant(
        (('message_delete(): slip_move "$q/done/$slip" || return $?',
        '{ true >"$q/done/$slip"; } 2>/dev/null || return 74'),),
        pair("plain/delete/release", " q/done/")),
    "the entry of an id is not created exclusively": Mutant(
        (("ids_next(): set -C", ":"),),
        pair("plain/push/push", r"open \.ids/")),
    "drop does not look for messages": Mutant(
        (("main(): drop_places || {", ": || {"),),
        pair("empty/touch/drop", "rename")),
    "a find beside a drop does not wait for it": Mutant(
        (("find_names(): drop_wait [ $? -ne 69 ] || return 69", ""),),
        pair("bare/drop/delete", "rmdir q/buried$")),
    "the lock is released once a key is entered": Mutant(
        (("push_enter(): key_enter; }", "key_enter; }\n  unlock_queue"),),
        pair("plain/push -k/push -k", "open q/wal/")),
    "a bulk take believes that it got all it chose": Mutant(
        (("bulk_singles(): bulk_got=$#\n [ $# -eq 0 ] || return 0", "return 0"),),
        pair("plain/drain/pop", "rename q/wal/")),
    "a slower take answers that nothing is there": Mutant(
        (('take_from_queue(): take_found\n take_code=$?',
        'take_found\n take_code=$?\n case $scan_place in wal | head/*) return $take_code ;; esac'),
        ),
        pair("plain/pop/pop", "rename q/head/")),
    "a claim without the lock": Mutant(
        (('main(): lock_queue || die $? "$why" claim_name_open',
        "need engine/proof\n  claim_name_open"),),
        pair("plain/claim/claim", "rename q/out/.* q/claimed/")),
    "a kick that is slower fails": Mutant(
        (("kick_these(): 66) ;;", "66) return 74 ;;"),),
        pair("plain/kick/kick", "rename q/buried/")),
    # the door
    "an answer to a client that is gone counts": Mutant(
        (('door_delivered(): [ -n "$door_inode" ] && [ -z "$door_relayed" ] ||', ""),),
        Probe("clients", "gone before the answer", "-k", 4)),
    "a line that was cut is obeyed": Mutant(
        (('line_read(): [ -n "$handler_line" ] || exit 0',
        '[ -z "$handler_line" ] || return 0; exit 0'),),
        Probe("clients", "cut in the line", "-k", 4)),
    "a reset counts as the end of the input": Mutant(
        (("door_whole(): door_row &&", "true ||"),),
        Probe("clients", "reset in the body", "-k", 4)),
    "a dot without its newline is an end": Mutant(
        (("input_dotted(): 2>/dev/null; then", '2>/dev/null && [ -z "$input_dot" ]; then'),),
        Probe("clients", "cut in the body", "-k", 4)),
    "a stated length is not looked at": Mutant(
        (('push_body(): [ -z "$1" ] || [ "$size" = "$1" ] ||', "true ||"),),
        Probe("clients", "cut in the body", "-k", 4)),
}


class Stale(Exception):
    """An edit no longer applies: the verbs have changed."""


def place(lib: Path, text: str) -> tuple[Path, int, int]:
    """Where in lib/ the text is, whatever blanks and newlines part its words. Raises Stale unless
    it is there once."""
    function = re.match(r"(\w+)\(\): ", text)
    words = text[function.end() if function else 0:].split()
    pattern = re.compile(r"\s+".join(".*?" if word == "..." else re.escape(word) for word in words),
        re.S)
    within = re.compile(rf"^{function[1]}\(\) [{{(]\n.*?^[}})]" if function else r"\A.*\Z",
        re.M | re.S)
    code = {path: path.read_text() for path in sorted(lib.rglob("*")) if path.is_file()}
    found = [(path, *match.span()) for path in code for area in within.finditer(code[path])
        for match in pattern.finditer(code[path], *area.span())]
    if len(found) != 1:
        raise Stale(f"{len(found)} times, not once, in "
            f"{', '.join(str(path.relative_to(lib.parent)) for path, _, _ in found) or 'lib/'}: "
            f"{text}")
    return found[0]


def edit(lib: Path, edits: Iterable[tuple[str, str]]) -> None:
    """Replace these texts. Raises Stale."""
    for old, new in edits:
        path, start, end = place(lib, old)
        text = path.read_text()
        path.write_text(text[:start] + new.strip() + text[end:])


def make(system: System, name: str, work: Path) -> System:
    """A copy of the verbs with the mutant's edits, below `work`, which is the caller's to remove;
    made once for each `work`."""
    top = work / ("mutant." + "-".join(name.split()).replace("/", ""))
    if not top.exists():
        shutil.copytree(system.lib, top / "lib")
        if (ROOT / "launch").exists():
            shutil.copy(ROOT / "launch", top)
        try:
            edit(top / "lib", MUTANTS[name].edits)
        except Stale as error:
            raise Stale(f"{name}: {error}") from None
    return System(top / "lib", name)
